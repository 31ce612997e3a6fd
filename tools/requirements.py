"""The distributions that an extra of this project requires, one per line, without the project itself.

    python tools/requirements.py dev > requirements.txt

`make` installs them while the core is compiled: `pip install '.[dev]'` would wait for the core.
"""

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[1]


def requirements(extra: str) -> list[str]:
    """The lines of pyproject.toml for an extra, those of the extras that it includes in their place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    def expanded(lines: list[str]) -> list[str]:
        found = []
        for line in lines:
            included = re.fullmatch(rf"{project['name']}\[(.*)\]", line)
            names = included[1].split(",") if included else []
            found += [each for name in names for each in expanded(extras[name])] if included else [line]
        return found

    return sorted({*project["dependencies"], *expanded(extras[extra])})


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
