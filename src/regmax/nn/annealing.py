"""gamma from dense to sparse over the first part of training.

At uniform weights 1/d the Jacobian of softmax is (I - 11'/d) / (gamma d), that of sparsemax (I - 11'/d) / gamma: d
times larger. Early in training, while scores mean nothing yet, sparse attention therefore collapses onto a few
positions, and a weight that is exactly zero gets no gradient back. A larger gamma at first keeps every position in
play.
"""

from typing import Any

import torch

from regmax.nn.strengths import Strengths


class AnnealGamma:
    """Sets gamma of every mapping module in a model, step by step, from `start` to `end`.

    gamma is `start` for the first `delay` steps, falls linearly over the next `steps`, and stays at `end`.

    Args:
        model: any module; its `regmax.nn` mappings are found wherever they are.
        start: gamma at first, larger than `end`: dense weights.
        end: gamma at last.
        steps: how many calls of `step` the way from `start` to `end` takes.
        delay: how many calls come before it.

    Example:
        >>> import regmax
        >>> mapping = regmax.nn.Sparsemax()
        >>> schedule = regmax.nn.AnnealGamma(mapping, start=4.0, end=1.0, steps=3)
        >>> gammas = [schedule.gamma]
        >>> for _ in range(4):  # after each optimizer.step()
        ...     schedule.step()
        ...     gammas.append(schedule.gamma)
        >>> gammas
        [4.0, 3.0, 2.0, 1.0, 1.0]
        >>> mapping
        Sparsemax(
          dim=-1
          (strengths): Strengths(gamma=1)
        )
    """

    def __init__(
        self, model: torch.nn.Module, *, start: float = 4.0, end: float = 1.0, steps: int, delay: int = 0
    ) -> None:
        for name, gamma in (("start", start), ("end", end)):
            if not gamma > 0:
                raise ValueError(f"`AnnealGamma(..., {name}=...)` must be positive. Got {gamma}.")
        if steps < 1 or delay < 0:
            raise ValueError(
                f"`AnnealGamma` needs steps >= 1 and delay >= 0. Got steps={steps}, delay={delay}."
            )
        self._strengths = [
            module for module in model.modules() if isinstance(module, Strengths) and "gamma" in module.fixed
        ]
        if not self._strengths:
            raise ValueError(
                "`AnnealGamma(model)` found no mapping of `regmax.nn` with a fixed gamma. A gamma that is learned or "
                "a tensor is not annealed."
            )
        self._start, self._end, self._steps, self._delay = start, end, steps, delay
        self._done = 0
        self._set()

    @property
    def gamma(self) -> float:
        """gamma as it is now."""
        share = min(max((self._done - self._delay) / self._steps, 0.0), 1.0)
        # Written so that the end is reached exactly, not up to rounding.
        return self._end if share == 1 else self._start + share * (self._end - self._start)

    @property
    def finished(self) -> bool:
        """Whether gamma has reached its end."""
        return self._done >= self._delay + self._steps

    def step(self) -> None:
        """One step of training is done."""
        self._done += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to save."""
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, and set gamma accordingly."""
        self._done = int(state["done"])
        self._set()

    def _set(self) -> None:
        for strengths in self._strengths:
            strengths.fixed["gamma"] = self.gamma
