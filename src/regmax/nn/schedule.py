"""A strength that moves linearly during training: the part that `AnnealGamma` and `GrowLam` share."""

from abc import ABC, abstractmethod
from typing import Any


class LinearSchedule(ABC):
    """A number that is `start` for `delay` steps, moves linearly over the next `steps`, and stays at `end`."""

    def __init__(self, start: float, end: float, *, steps: int, delay: int) -> None:
        if steps < 1 or delay < 0:
            name = type(self).__name__
            raise ValueError(f"`{name}` needs steps >= 1 and delay >= 0. Got steps={steps}, delay={delay}.")
        self._start, self._end, self._steps, self._delay = start, end, steps, delay
        self._done = 0

    @property
    def finished(self) -> bool:
        """Whether the end is reached."""
        return self._done >= self._delay + self._steps

    def step(self) -> None:
        """Advance the schedule by one training step."""
        self._done += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint."""
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, and set the model's strengths accordingly."""
        self._done = int(state["done"])
        self._set()

    @property
    def _value(self) -> float:
        share = min(max((self._done - self._delay) / self._steps, 0.0), 1.0)
        # The end is reached exactly, not only up to rounding.
        return self._end if share == 1 else self._start + share * (self._end - self._start)

    @abstractmethod
    def _set(self) -> None:
        """Give the current value to the model."""
