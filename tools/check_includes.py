"""Check that the core's includes go down only: `python tools/check_includes.py [csrc]`.

A file may include files of its own folder and of folders below it, never in a cycle. `regmax.h`, the C interface, has
types only, so every file may include it. The C enum of the kernels is switched over in `mappings/mapping.hpp` only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

# From the bottom to the top; "." is csrc itself.
FOLDERS = ("runtime", "simd", "algorithms", "mappings", "rows", "attention", ".")
INTERFACE = "regmax.h"
SWITCH = "mappings/mapping.hpp"

_SUFFIXES = {".h", ".hpp", ".cpp"}
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
_KERNEL = re.compile(r"case REGMAX_|kernel ==")

Includes = Mapping[Path, Sequence[tuple[int, Path]]]  # each file's line numbers and the files included there


def faults(root: Path) -> list[str]:
    """What is wrong in the tree at `root`, a line each."""
    files = sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES)
    names = {path.resolve(): path.relative_to(root) for path in files}
    found = [*_unknown_folders(names.values()), *_unresolved(root, files), *_switches(root, names.values())]
    includes = {names[path.resolve()]: list(_resolved(root, path, names)) for path in files}
    return [*found, *_upward(includes), *_cycles(includes)]


def _unknown_folders(names: Iterable[Path]) -> Iterator[str]:
    known = ", ".join(name for name in FOLDERS if name != ".")
    for folder in sorted({str(name.parent) for name in names} - set(FOLDERS)):
        yield f"{folder}/: this folder has no place in the order of includes. Known are {known}."


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))


def _quoted(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in _lines(path):
        if included := _INCLUDE.match(line):
            yield number, included[1]


def _find(root: Path, path: Path, included: str) -> Path | None:
    """The file meant by an include: relative to the including file or to csrc, as the compiler looks for it."""
    candidates = (path.parent / included, root / included)
    return next((candidate.resolve() for candidate in candidates if candidate.is_file()), None)


def _unresolved(root: Path, files: Sequence[Path]) -> Iterator[str]:
    for path in files:
        for number, included in _quoted(path):
            if _find(root, path, included) is None:
                yield f'{path.relative_to(root)}:{number}: "{included}" does not exist.'


def _resolved(root: Path, path: Path, names: Mapping[Path, Path]) -> Iterator[tuple[int, Path]]:
    for number, included in _quoted(path):
        target = _find(root, path, included)
        if target is not None and target in names:
            yield number, names[target]


def _level(name: Path) -> int:
    """How high a file stands; -1 for the C interface. An unknown folder is reported once, not at every include."""
    if str(name) == INTERFACE:
        return -1
    folder = str(name.parent)
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def _upward(includes: Includes) -> Iterator[str]:
    order = " -> ".join("csrc" if folder == "." else folder for folder in reversed(FOLDERS))
    for name, targets in includes.items():
        for number, target in targets:
            if _level(target) > _level(name):
                yield f"{name}:{number}: includes {target}, which stands higher. The order is {order}."


def _cycles(includes: Includes) -> Iterator[str]:
    """Each cycle that a depth-first walk closes."""
    done: set[Path] = set()
    path: list[Path] = []

    def walk(name: Path) -> Iterator[str]:
        if name in path:
            cycle = [*path[path.index(name) :], name]
            yield f"{name}: includes itself, {' -> '.join(map(str, cycle))}."
            return
        if name in done:
            return
        path.append(name)
        for _, target in includes[name]:
            yield from walk(target)
        path.pop()
        done.add(name)

    for name in includes:
        yield from walk(name)


def _switches(root: Path, names: Iterable[Path]) -> Iterator[str]:
    for name in names:
        if str(name) != SWITCH:
            for number, line in _lines(root / name):
                if _KERNEL.search(line):
                    yield f"{name}:{number}: only {SWITCH} may distinguish kernels. Got `{line.strip()}`."


def main(arguments: Sequence[str]) -> int:
    """Print the faults; 1 if there are any."""
    root = Path(arguments[0] if arguments else "csrc")
    found = faults(root)
    for fault in found:
        print(f"{root}/{fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
