"""Progress of a run: a progress bar on a terminal, one line per epoch elsewhere, TensorBoard."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from regmax.experiments.errors import ExperimentError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_EVERY = 10  # steps between two updates


class Reporter:
    """The progress of a run; `quiet` prints nothing, for all processes except the first."""

    def __init__(self, title: str, total: int, *, folder: Path | None, start: int, quiet: bool) -> None:
        console = Console(quiet=quiet, highlight=False, soft_wrap=True)
        text = TextColumn(
            "{task.description} loss {task.fields[loss]:.3f} · {task.fields[speed]:,.0f} words/s"
        )
        self._bar = Progress(
            text, BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn(),
            console=console, disable=quiet or not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, completed=start, loss=float("nan"), speed=0.0)
        self._title = title
        self._board = None
        if folder is not None and not quiet:
            self._board = _board(folder, start)

    def __enter__(self) -> "Reporter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._board is not None:
            self._board.close()

    def due(self, step: int) -> bool:
        """Whether `step` is shown."""
        return step % _EVERY == 0

    def step(self, step: int, loss: float, speed: float) -> None:
        """Show a training step: the loss of its batch, and the words per second of the epoch so far."""
        self._bar.update(self._task, completed=step, loss=loss, speed=speed)
        self._log("train", {"loss": loss, "words per second": speed}, step)

    def epoch(self, step: int, epoch: int, scores: dict[str, float]) -> None:
        """Show the scores after an epoch."""
        shown = " · ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self._bar.console.print(f"{self._title} epoch {epoch}: {shown}")
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
