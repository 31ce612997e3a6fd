"""Compare the versions of the package and of the changelog, and a tag if one is given.

python tools/check_version.py v0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def package() -> str:
    """The version in src/regmax/versions.py."""
    return re.findall(r'^__version__ = "(.+)"$', _read("src/regmax/versions.py"), re.MULTILINE)[0]


def changelog() -> str:
    """The newest version in CHANGELOG.md."""
    return re.findall(r"^## v(\d\S*)", _read("CHANGELOG.md"), re.MULTILINE)[0]


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def main(tags: list[str]) -> int:
    """Print the versions; 1 if they differ."""
    found = [package(), changelog(), *(tag.removeprefix("v") for tag in tags)]
    print("version: " + ", ".join(found))
    return int(len(set(found)) > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
