"""The command line explains itself."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from regmax.cli import main
from regmax.cli.commands import COMMANDS

Captured = pytest.CaptureFixture[str]
DOCS = Path(__file__).parents[2] / "docs"


def parsers() -> list[argparse.ArgumentParser]:
    """Of every command, and of every task of `train`."""
    commands = [import_module(f"regmax.cli.{name}").parser() for name in COMMANDS]
    nested = [
        action for command in commands for action in command._actions if isinstance(action.choices, dict)
    ]
    return [*commands, *(parser for action in nested for parser in action.choices.values())]


def test_every_option_has_a_sentence_and_a_default() -> None:
    silent, without_default = [], []
    for parser in parsers():
        for action in parser._actions:
            if not action.option_strings or isinstance(action, argparse._HelpAction):
                continue
            text = action.help or ""
            if len(text.split()) < 2:
                silent.append((parser.prog, action.dest))
            switch = action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
            needed = not switch and action.metavar != "NAME" and parser.prog.startswith("regmax train ")
            if needed and not re.search(r"\(.+\)$", text):
                without_default.append((parser.prog, action.dest))
    assert silent == []
    assert without_default == []


def test_help_of_a_task_tells_the_presets_apart(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["train", "translation", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "--epochs N passes over the training set (small: 5, paper: 13)" in printed
    assert "--lower, --no-lower lower-case all text (yes)" in printed
    assert (
        "--train FILE [FILE ...] training files: a source and its target, or one JSON-lines file" in printed
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["demo", "train", "regmax train translation --mapping fusedmax", "`regmax COMMAND --help`"]),
        (["plot"], ["regmax plot figures", "--mapping", "curves"]),
        (["train"], ["translation", "entailment", "summarization", "ROUGE"]),
        (["evaluate"], ["RUN", "--test", "where `regmax table` finds it"]),
    ],
)
def test_a_command_without_arguments_prints_its_help(
    arguments: list[str], words: list[str], capsys: Captured
) -> None:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [word for word in words if word not in printed.out] == []


def test_the_page_of_the_command_line_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    sys.modules.pop("command_line", None)
    page = import_module("command_line").page()
    assert (DOCS / "command-line.md").read_text(encoding="utf-8") == page, (
        "run `python docs/extensions/command_line.py`"
    )
    assert "command-line" in (DOCS / "guide.md").read_text(encoding="utf-8").split()
