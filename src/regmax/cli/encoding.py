"""Output for terminals that know no Unicode: signs are replaced by ones that look alike instead of raising."""

import codecs
import io
import sys

_ALIKE = str.maketrans(
    {"±": "+-", "—": "-", "–": "-", "─": "-", "━": "-", "·": ".", "…": "...", "×": "x", "µ": "u", "γ": "gamma",
     "λ": "lam", "✓": "ok", "✗": "no", "╭": "/", "│": "|", "╰": "\\", "‿": "_"}
)  # fmt: skip


def accept_every_letter() -> None:
    """Make standard output and error print what their encoding lacks in other letters."""
    codecs.register_error("regmax", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="regmax")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ALIKE)
    return text.encode("ascii", "replace").decode("ascii"), error.end
