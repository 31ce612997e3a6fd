"""Every field of a configuration as an option of the command line."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

from regmax.experiments.config import KNEES, PRESETS, Files, make
from regmax.experiments.fields import GROUPS

_PRESETS = ("small", "paper")
_FIXED = ("task", "preset")
_METAVARS = {int: "N", float: "X", str: "TEXT"}


def add_fields(parser: argparse.ArgumentParser, task: str) -> None:
    """Add `--config` and an option for each field; an option that is not given leaves no trace."""
    text = "preset: sized for two CPU cores, or the paper's settings (%(default)s)"
    parser.add_argument("--config", choices=_PRESETS, default=_PRESETS[0], help=text)
    small, paper = (PRESETS[task, preset] for preset in _PRESETS)
    hints = get_type_hints(type(small))
    for name in GROUPS:
        fields = [field for field in dataclasses.fields(small) if field.metadata.get("group") == name]
        if not fields:
            continue
        group = parser.add_argument_group(name)
        for field in fields:
            default = _default(
                getattr(small, field.name), getattr(paper, field.name), _knees(task, field.name)
            )
            group.add_argument(
                f"--{field.name.replace('_', '-')}",
                default=argparse.SUPPRESS,
                help=f"{field.metadata['help']}{default}".replace("%", "%%"),
                **_kind(hints[field.name]),
            )


def _default(small: Any, paper: Any, knees: Sequence[str]) -> str:
    """The defaults of the two presets, in brackets."""
    texts = [_shown(value) for value in (small, paper)]
    text = texts[0] if small == paper else f"small: {texts[0]}, paper: {texts[1]}"
    return f" ({'; '.join([*knees, f'otherwise {text}'])})" if knees else f" ({text})"


def _knees(task: str, name: str) -> list[str]:
    """The defaults of one field that hold for one mapping of a preset."""
    return [
        f"{preset}, {mapping}: {_shown(knee[name])}"
        for (of, preset, mapping), knee in KNEES.items()
        if of == task and name in knee
    ]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "the mapping's own"
    return "none" if value in ((), "") else str(value)


def given(options: argparse.Namespace, task: str) -> dict[str, Any]:
    """The fields that the command gives."""
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
    (kind,) = (part for part in get_args(hint) or (hint,) if part is not type(None))
    return {"type": kind, "metavar": _METAVARS[kind]}
