"""Shared by the commands that run experiments: optional packages, errors, and numbers with their units."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from regmax.cli.errors import CommandError
from regmax.extras import how_to_install


@contextmanager
def packages(extra: str = "experiments") -> Iterator[None]:
    """Turn a missing package into a message that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: {how_to_install(extra)}.") from error


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the errors of an experiment, and those of exhausted memory, into one line."""
    from regmax.experiments.errors import ExperimentError

    try:
        yield
    except ExperimentError as error:
        raise CommandError(str(error)) from error
    except MemoryError as error:
        raise CommandError("out of memory: choose a smaller model or batch.") from error
    except RuntimeError as error:
        # torch has no error class for this on the CPU.
        if "memory" not in str(error):
            raise
        first = str(error).splitlines()[0]
        raise CommandError(f"out of memory: choose a smaller model or batch ({first}).") from error


def print_result(
    scores: Mapping[str, float],
    attention: Mapping[str, float],
    attention_on: str,
    speed: Mapping[str, float] | None = None,
) -> None:
    """Print scores and statistics with their units, and say which target the attention's statistics describe."""
    _print(scores)
    if attention_on:
        aligned = " (precision, recall, mass: on the reference)" if "precision" in attention else ""
        sys.stdout.write(f"attention on {attention_on}{aligned}\n")
    _print(attention)
    _print(speed or {})


def _print(numbers: Mapping[str, float]) -> None:
    from regmax.experiments.metrics.units import unit

    for name, value in numbers.items():
        sys.stdout.write(f"{name:<28}{value:12.2f} {unit(name)}".rstrip() + "\n")
