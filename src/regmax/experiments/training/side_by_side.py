"""Parallel runs, one process with one thread each: faster than one after the other with several threads."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from regmax.experiments.config import Config, dumps
from regmax.experiments.errors import ExperimentError
from regmax.experiments.training import runs

_CONTINUE = (
    "import pathlib, sys; from regmax.experiments.run import resume; resume(pathlib.Path(sys.argv[1]), {})"
)
# One thread, and unbuffered output.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_STEP = re.compile(r".* step (\d+/\d+): .*")
_EPOCH = re.compile(r"(.* epoch (\d+)): (.*)")  # the format of training.progress


def train_side_by_side(configs: Mapping[Path, Config]) -> None:
    """Train runs in their folders, one per core at a time.

    Finished runs are skipped, and interrupted ones continue: call it again after Ctrl-C.
    """
    for folder, config in configs.items():
        if not (folder / runs.CONFIG).exists():
            runs.create(config, folder)
        elif (folder / runs.CONFIG).read_text(encoding="utf-8") != dumps(config):
            raise ExperimentError(f"{folder} holds another run: remove it, or choose another folder.")
    with _Bars(configs) as bars:
        asyncio.run(_train_all([f for f in configs if not (f / runs.RESULT).exists()], bars))


class _Bars:
    """One bar per run on a terminal, one line per epoch elsewhere."""

    def __init__(self, configs: Mapping[Path, Config]) -> None:
        console = Console(highlight=False, soft_wrap=True)
        self._bars = Progress(
            TextColumn("{task.description:<12}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[scores]}"),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._tasks = {}
        for folder, config in configs.items():
            self._tasks[folder] = self._bars.add_task(
                config.mapping, start=False, total=config.epochs, scores="waits"
            )
            if (folder / runs.RESULT).exists():
                self._bars.start_task(self._tasks[folder])
                self._bars.update(self._tasks[folder], completed=config.epochs, scores="done before")

    def __enter__(self) -> "_Bars":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def start(self, folder: Path) -> None:
        """Show that a run has begun."""
        self._bars.start_task(self._tasks[folder])
        self._bars.update(self._tasks[folder], scores="reading data")

    def line(self, folder: Path, line: str) -> None:
        """Show the output of a run."""
        if not self._bars.disable and (step := _STEP.fullmatch(line)):
            self._bars.update(self._tasks[folder], scores=f"step {step[1]}")
            return
        found = _EPOCH.fullmatch(line)
        if found is None:
            self._bars.console.print(line)
            return
        title, epoch, scores = found.groups()
        shown = " · ".join(score for score in scores.split(" · ") if score.startswith("dev "))
        self._bars.update(self._tasks[folder], completed=int(epoch), scores=shown)
        if self._bars.disable:
            self._bars.console.print(f"{title}: {shown}")

    def stop(self, folder: Path) -> None:
        """Show that a run has ended."""
        self._bars.stop_task(self._tasks[folder])


async def _train_all(folders: list[Path], bars: _Bars) -> None:
    cores = asyncio.Semaphore(os.cpu_count() or 1)
    await asyncio.gather(*(_train(folder, cores, bars) for folder in folders))


async def _train(folder: Path, cores: asyncio.Semaphore, bars: _Bars) -> None:
    async with cores:
        bars.start(folder)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CONTINUE, str(folder), env=os.environ | _ENVIRONMENT,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None  # both are pipes
        try:
            errors, _ = await asyncio.gather(process.stderr.read(), _follow(process.stdout, folder, bars))
            code = await process.wait()
        finally:
            # Another run failed, or the user interrupted. Checkpoints are complete at any moment.
            if process.returncode is None:
                process.terminate()
                await process.wait()
        bars.stop(folder)
    if code:
        message = errors.decode(errors="replace").strip() or f"it ended with code {code}"
        raise ExperimentError(f"Training in {folder} failed: {message.splitlines()[-1]}")


async def _follow(lines: asyncio.StreamReader, folder: Path, bars: _Bars) -> None:
    async for line in lines:
        bars.line(folder, line.decode(errors="replace").rstrip())
