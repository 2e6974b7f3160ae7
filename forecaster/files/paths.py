"""Convert file names, which are bytes, to text and back in every locale; open any for Arrow."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATOR_LINE = re.compile(r"\s*\"?sep=(?P<separator>.)\"?\s*", re.IGNORECASE)
"""The first line of a CSV file, with which spreadsheets name the sign between cells."""


def as_text(path: str | Path) -> str:
    """Return a path as text, read as UTF-8 in every locale.

    Bytes that are not UTF-8 become lone surrogates, as in Python; :func:`as_bytes` reverses it.
    """
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes of a path from its :func:`as_text`."""
    return text.encode("utf-8", "surrogateescape")


def from_text(text: str) -> Path:
    """Return the path that a user typed in this locale, or that :func:`as_text` gave in any."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return Path(os.fsdecode(as_bytes(text)))
    return Path(text)


def readable(name: str | Path) -> str:
    r"""Return a name as valid text, in which a byte that is not UTF-8 is written as ``\xf6``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def read_plain(path: Path) -> bytes:
    """Return the content of a plain file. Raises OSError for any other.

    Reading from a pipe or a device may never end.
    """
    check_plain(path)
    return path.read_bytes()


def check_plain(path: Path) -> None:
    """Raise OSError if a path exists and is neither a plain file nor a link to one."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the latter of a NUL in the name
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def open_for_arrow(path: Path, mode: Literal["rb", "wb"] = "rb") -> "pa.NativeFile":
    """Open a file for Arrow, which by itself opens only names in UTF-8.

    Raises OSError with the name if the file does not exist, or is to be read and is not plain.
    """
    import pyarrow as pa

    if mode == "rb":
        path.stat()  # the error of Arrow does not name the file
        check_plain(path)
    return pa.OSFile(os.fsencode(path), mode)
