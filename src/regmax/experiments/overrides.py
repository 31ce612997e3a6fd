"""Every field of a configuration as an option of the command line."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, get_type_hints

from regmax.experiments.config import PRESETS, Files, make

_PRESETS = ("small", "paper")
_FIXED = ("task", "preset")


def add_fields(parser: argparse.ArgumentParser, task: str) -> None:
    """Add `--config` and an option for each field; an option that is not given leaves no trace."""
    text = "the hyperparameters: sized for two CPU cores, or the paper's (%(default)s)"
    parser.add_argument("--config", choices=_PRESETS, default=_PRESETS[0], help=text)
    small, paper = (PRESETS[task, preset] for preset in _PRESETS)
    hints = get_type_hints(type(small))
    group = parser.add_argument_group("fields", "in brackets: small, paper")
    for field in dataclasses.fields(small):
        if field.name in _FIXED:
            continue
        defaults = f"[{getattr(small, field.name)}, {getattr(paper, field.name)}]".replace("%", "%%")
        group.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            help=defaults,
            **_kind(hints[field.name]),
        )


def given(options: argparse.Namespace, task: str) -> dict[str, Any]:
    """The fields that the command gives, the preset if it is named."""
    names = {field.name for field in dataclasses.fields(PRESETS[task, "small"])}
    fields = {name: value for name, value in vars(options).items() if name in names - set(_FIXED)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def parse(task: str, arguments: Sequence[str]) -> Any:
    """The configuration that a list of options describes.

    Example:
        >>> parse("translation", ["--mapping", "sparsemax", "--epochs", "2", "--no-lower"]).epochs
        2
    """
    parser = argparse.ArgumentParser()
    add_fields(parser, task)
    options = parser.parse_args(arguments)
    return make(task, options.config, given(options, task))


def _kind(hint: Any) -> dict[str, Any]:
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if hint == Files:
        return {"nargs": "+", "metavar": "FILE"}
    return {"type": hint, "metavar": hint.__name__.upper()}
