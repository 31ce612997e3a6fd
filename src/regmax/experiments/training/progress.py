"""Progress of a run: bars on a terminal, one line per minute and per epoch elsewhere, TensorBoard."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from regmax.experiments.errors import ExperimentError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Item = TypeVar("Item")
Clock = Callable[[], float]
_EVERY = 10  # steps between two updates of the bar
_MINUTE = 60.0  # seconds between two lines, where there is no bar


class _Show:
    """One bar per task on a terminal, one line per minute elsewhere."""

    def __init__(self, title: str, console: Console, clock: Clock = time.monotonic) -> None:
        self._title, self._clock = title, clock
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description} {task.fields[text]}"), BarColumn(),
            TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn(),
            console=console, disable=console.quiet or not console.is_terminal,
        )  # fmt: skip
        self._said = clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def watch(self, items: Sequence[Item], text: str) -> Iterator[Item]:
        """The items, while it is shown how many are done."""
        bar = self._bar.add_task(self._title, total=len(items), text=text)
        try:
            for done, item in enumerate(items):
                if self._silent_for_a_minute():
                    self._say(f"{self._title}: {text} {done}/{len(items)}")
                yield item
                self._bar.update(bar, completed=done + 1)
        finally:
            self._bar.remove_task(bar)

    def _silent_for_a_minute(self) -> bool:
        return self._bar.disable and self._clock() - self._said >= _MINUTE

    def _say(self, line: str) -> None:
        self._said = self._clock()
        self.console.print(line)


class Evaluation(_Show):
    """The progress of an evaluation, on standard error; `quiet` prints nothing."""

    def __init__(self, title: str, *, quiet: bool = False, clock: Clock = time.monotonic) -> None:
        super().__init__(title, Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True), clock)

    def __enter__(self) -> "Evaluation":
        self._bar.start()
        if self._bar.disable:
            self._say(f"{self._title} ...")
        return self


class Reporter(_Show):
    """The progress of training; `quiet` prints nothing, for all processes except the first."""

    def __init__(
        self,
        title: str,
        total: int,
        *,
        folder: Path | None,
        start: int,
        quiet: bool,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(title, Console(quiet=quiet, highlight=False, soft_wrap=True), clock)
        self._task = self._bar.add_task(title, total=total, completed=start, text="begins")
        self._start, self._total, self._began = start, total, clock()
        self._board = None
        if folder is not None and not quiet:
            self._board = _board(folder, start)

    def __enter__(self) -> "Reporter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._board is not None:
            self._board.close()

    def due(self, step: int) -> bool:
        """Whether `step` is one of those that are shown: the first, every tenth, and one a minute."""
        return step == self._start + 1 or step % _EVERY == 0 or self._silent_for_a_minute()

    def step(self, step: int, loss: float, speed: float) -> None:
        """Show a training step: the loss of its batch, and the words per second of the epoch so far."""
        text = f"loss {loss:.3f} · {speed:,.0f} words/s"
        self._bar.update(self._task, completed=step, text=text)
        if self._silent_for_a_minute():
            seconds = (self._clock() - self._began) / (step - self._start) * (self._total - step)
            self._say(f"{self._title} step {step}/{self._total}: {text} · {seconds / 60:.0f} min left")
        self._log("train", {"loss": loss, "words per second": speed}, step)

    def epoch(self, step: int, epoch: int, scores: dict[str, float]) -> None:
        """Show the scores after an epoch."""
        shown = " · ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self._say(f"{self._title} epoch {epoch}: {shown}")
        self._log("dev", scores, step)

    def _log(self, group: str, values: dict[str, float], step: int) -> None:
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{group}/{name}", value, step)


def _board(folder: Path, start: int) -> "SummaryWriter":
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ExperimentError(
            f"{error.name} is missing: install it, or choose `--no-tensorboard`."
        ) from error
    # Steps that a killed run logged after its last checkpoint are logged again.
    return SummaryWriter(str(folder), purge_step=start)
