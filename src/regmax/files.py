"""Atomic writing of files, and reading of JSON from untrusted files."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

_SUFFIX = ".tmp"


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Replace a file so that a crash or a full disk leaves either the old content or the new.

    The content is written to a temporary file in the same folder, flushed to the disk, and renamed. A failed write
    removes the temporary file; one left by a killed process is overwritten by the next write or removed by
    `remove_leftovers`.

    Args:
        path: the file; folders above it are made. The target of a symbolic link is replaced, not the link; a device
            or a pipe is written to directly.
        content: bytes, or text that is written as UTF-8.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder, "new", "file.txt"), "text")
        ...     [path.name for path in Path(folder, "new").iterdir()]
        ['file.txt']
    """
    # Encoded first, so that text that cannot be encoded leaves the existing file intact.
    data = content.encode() if isinstance(content, str) else content
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}{_SUFFIX}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:  # also an interrupt
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writes that were killed."""
    for path in folder.glob(f".*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether a path is the temporary file of a write that was killed."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)


def read_json(path: Path | str) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: with a one-line message, for any fault of the file: encoding, syntax, nesting, and numbers of
            thousands of digits.
    """
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def parse_json(text: str) -> Any:
    """JSON in a string; see `read_json`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply.") from None


def is_text(value: Any) -> bool:
    r"""Whether a value is a string that can be written: JSON's `"\ud800"`, half a surrogate pair, cannot.

    Example:
        >>> is_text("déjà vu"), is_text("\ud800"), is_text(3)
        (True, False, False)
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Flush a rename to the disk, on systems that can open a folder."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
