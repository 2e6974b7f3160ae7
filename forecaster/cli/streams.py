"""Handle standard output and error that are closed, full, or in a narrow encoding."""

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator

from forecaster.cli.shared import say
from forecaster.errors import WriteError


def prepare_streams() -> None:
    """Make standard output and error writable, however the caller set them up.

    Characters that their encoding lacks are shown as numbers. The descriptor of a closed stream is
    reserved: otherwise the next file opened would get it, and with it the messages that libraries
    write to standard error. Raises WriteError where standard output is closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Opens the lowest free descriptor, which is this one; child processes inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise WriteError(
            "standard output is closed, so the output is lost; give it a terminal, a file or a pipe"
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say_output_failed(error: OSError) -> None:
    """Say why the output could not be written, and drop the rest of it."""
    say(f"Error: output: {error.strerror or error}, so the output is lost")
    with contextlib.suppress(OSError, AttributeError, io.UnsupportedOperation):
        # Otherwise the interpreter would try to write again when it exits.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Show the package's own warnings in one line each, and hide those of its libraries."""
    # It logs that it builds a cache, or has no folder.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.showwarning = _say_warning
        yield


def _say_warning(message: Warning | str, category: type[Warning], *where: object) -> None:
    if category.__module__.partition(".")[0] == "forecaster":
        say(f"Warning: {message}")
