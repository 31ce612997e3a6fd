"""Writes docs/command-line.md from the command line's own parsers: `python docs/extensions/command_line.py`."""

import argparse
import re
from importlib import import_module
from pathlib import Path

from regmax.cli.commands import COMMANDS
from regmax.files import write_atomically

PAGE = Path(__file__).parents[1] / "command-line.md"
_HEAD = """\
# The command line

What `regmax COMMAND --help` prints, on one page. In brackets: the default.
Every error is one line on standard error, with exit code 2; after Ctrl-C the exit code is 130.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for name, summary in COMMANDS.items():
        parser = import_module(f"regmax.cli.{name}").parser()
        parts.append(f"\n## regmax {name}\n\n{_text(parser.description or summary)}\n")
        tasks = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not tasks:
            parts.append(_options(parser))
        for task, command in (pair for action in tasks for pair in action.choices.items()):
            parts.append(f"\n### regmax {name} {task}\n\n{_text(command.description)}\n{_options(command)}")
        if parser.epilog:
            parts.append(f"\n```text\n{parser.epilog.strip()}\n```\n")
    return "".join(parts)


def _options(parser: argparse.ArgumentParser) -> str:
    """A table for each group of options."""
    text = ""
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if not isinstance(action, argparse._HelpAction)]
        if not actions:
            continue
        kind = "argument" if group.title == "positional arguments" else "option"
        title = "" if group.title in ("positional arguments", "options") else f"\n**{_text(group.title)}**"
        about = f": {_text(group.description)}" if title and group.description else ""
        rows = [f"| `{_code(_name(formatter, a))}` | {_text(formatter._expand_help(a))} |" for a in actions]
        text += f"{title}{about}\n\n" if title else "\n"
        text += "\n".join([f"| {kind} | meaning |", "|---|---|", *rows]) + "\n"
    return text


def _name(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    return formatter._format_action_invocation(action)


def _code(text: str) -> str:
    return text.replace("|", r"\|")


def _text(text: str | None) -> str:
    """One paragraph; signs that Markdown reads are escaped outside of backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join((text or "").split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<|])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    write_atomically(PAGE, page())
