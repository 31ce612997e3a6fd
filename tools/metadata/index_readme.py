"""README.md for the package index, which has neither the repository's files nor mathematics.

Relative links become links to the repository at this version's tag, formulas plain text.

A dynamic-metadata provider of scikit-build-core, named in pyproject.toml.
"""

import re
from collections.abc import Mapping
from pathlib import Path

HOME = "https://github.com/regmax/regmax"
_LINK = re.compile(r"(!?)(\[[^]]*\]\()(?!https?://|#)([^)]+\))")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$")
# What the README's formulas use. Bars of absolute values must not be those of tables.
_TEXT = {
    r"\arg\max": "argmax",
    r"^\top": "ᵀ",
    r"\frac12": "½",
    r"\lVert ": "‖",
    r" \rVert": "‖",
    r"\lvert ": "∣",
    r" \rvert": "∣",
    r"\Omega": "Ω",
    r"\Pi": "Π",
    r"\Delta": "Δ",
    r"\alpha": "α",
    r"\gamma": "γ",
    r"\lambda": "λ",
    r"\sum": "Σ",
    r"\in": "∈",
    r"\log": "log",
    r"\max": "max",
    r"\;": "",
    r"\,": " ",
}
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def dynamic_metadata(
    field: str, settings: Mapping[str, object], _project: Mapping[str, object] | None = None
) -> dict[str, str]:
    """The value of `project.readme`."""
    if field != "readme" or settings:
        raise ValueError(
            f"index_readme provides `readme` and has no settings. Got {field!r}, {dict(settings)}."
        )
    found = _VERSION.search(Path("src/regmax/versions.py").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(
            "src/regmax/versions.py must contain the version. Got a file without `__version__ =`."
        )
    text = plain(absolute(Path("README.md").read_text(encoding="utf-8"), f"v{found[1]}"))
    return {"content-type": "text/markdown", "text": text}


def absolute(text: str, tag: str) -> str:
    """Markdown with relative links and pictures replaced by absolute ones.

    Example:
        >>> absolute("![a](docs/a.png) [b](LICENSE) [c](#speed)", "v1")[:49]
        '![a](https://raw.githubusercontent.com/regmax/reg'
    """
    raw = HOME.replace("github.com", "raw.githubusercontent.com")

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        return f"{picture}{label}{f'{raw}/{tag}' if picture else f'{HOME}/blob/{tag}'}/{target}"

    return _LINK.sub(link, text)


def plain(text: str) -> str:
    r"""Markdown with formulas as plain text.

    Example:
        >>> plain(r"$\frac12 \lVert y \rVert_2^2$ and $\sum_{i<j} y_i$")
        '`½ ‖y‖_2^2` and `Σ_(i<j) y_i`'
    """
    return _FORMULA.sub(lambda match: f"`{_formula(match[1] or match[2])}`", text)


def _formula(tex: str) -> str:
    tex = re.sub(r"\\frac\{1\}\{([^}]*)\}", r"1/(\1)", tex)
    for command, symbol in _TEXT.items():
        tex = tex.replace(command, symbol)
    if unknown := re.findall(r"\\\w+", tex):
        raise ValueError(
            f"The README's formulas must be readable as text. Add {', '.join(unknown)} to _TEXT."
        )
    return re.sub(r"\{([^}]*)\}", r"(\1)", tex)
