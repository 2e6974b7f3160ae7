"""Names of files are bytes, which need not be text: as text for all locales, and for Arrow."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa


def as_text(path: str | Path) -> str:
    """A path as the same text in every locale: read as UTF-8, whatever the locale says.

    Bytes that are no UTF-8 become lone surrogates, as Python does it; see :func:`as_bytes`.
    """
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """What :func:`as_text` was made of."""
    return text.encode("utf-8", "surrogateescape")


def from_text(text: str) -> Path:
    """The path that a user typed in this locale, or that :func:`as_text` described in another."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return Path(os.fsdecode(as_bytes(text)))
    return Path(text)


def readable(name: str | Path) -> str:
    r"""A name as text that can be written anywhere: a byte that is no UTF-8 becomes ``\xf6``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_for_arrow(path: Path, mode: Literal["rb", "wb"] = "rb") -> "pa.NativeFile":
    """A file for Arrow, which by itself opens only names that are UTF-8.

    Raises OSError with the name when it is not there.
    """
    import pyarrow as pa

    if mode == "rb":
        path.stat()  # Arrow's error has no name
    return pa.OSFile(os.fsencode(path), mode)
