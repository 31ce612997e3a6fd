"""README.md for the package index: its relative links become links to the repository at this version's tag.

A dynamic-metadata provider of scikit-build-core, named in pyproject.toml.
"""

import re
from collections.abc import Mapping
from pathlib import Path

HOME = "https://github.com/regmax/regmax"
_LINK = re.compile(r"(!?)(\[[^]]*\]\()(?!https?://|#)([^)]+\))")
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
    text = absolute(Path("README.md").read_text(encoding="utf-8"), f"v{found[1]}")
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
