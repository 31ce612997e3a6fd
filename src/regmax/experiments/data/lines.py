"""Text files, gzip-compressed or plain, line by line; errors name the file and the line number."""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

from regmax.experiments.errors import ExperimentError

_GZIP = b"\x1f\x8b"


def read_lines(path: Path) -> list[str]:
    r"""The lines of a UTF-8 file, without line endings.

    Example:
        >>> import tempfile, gzip
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp(), "two.gz")
        >>> _ = path.write_bytes(gzip.compress(b"one\ntwo\n"))
        >>> read_lines(path)
        ['one', 'two']
    """
    lines = _read(path).split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise ExperimentError(f"{path} is empty.")
    return [_decode(line, path, number) for number, line in enumerate(lines, 1)]


def read_parallel(paths: Sequence[Path]) -> list[tuple[str, ...]]:
    """The corresponding lines of several files, which must have the same number of lines."""
    columns = [read_lines(path) for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(columns[0]):
            raise ExperimentError(
                f"Line-parallel files must have the same number of lines: "
                f"{paths[0]} has {len(columns[0])}, {path} has {len(column)}."
            )
    return list(zip(*columns, strict=True))


def bad_line(path: Path, number: int, why: str) -> ExperimentError:
    """The error for a line that a reader cannot use."""
    return ExperimentError(f"{path}, line {number}: {why}")


def _read(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ExperimentError(f"{path} is not a complete gzip file: {error}.") from error


def _decode(line: bytes, path: Path, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise bad_line(path, number, f"not UTF-8 ({error.reason} at byte {error.start}).") from error
