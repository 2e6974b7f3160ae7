"""Run a command whatever its streams, its signals and its errors are, and return its exit code.

Standard output and error may be closed, full, or in a narrow encoding. A command may be stopped
from outside: by Ctrl-C, by a batch system, by closing its terminal.
"""

import contextlib
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import click

from forecaster.cli.output import say
from forecaster.errors import ForecasterError, StoreError, WriteError

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # as XLA says it
_AGAIN = 0.05  # seconds
_SIGNALS = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Commands(click.Group):
    """Turn the library's errors into one clear message and an exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Parse the command line and run its command, on streams that can be written to."""
        try:
            prepare_streams()
            return super().main(*args, **options)
        except ForecasterError as error:  # raised while a help is shown, before any command runs
            say(f"Error: {error}")
            sys.exit(error.exit_code)
        except OSError as error:
            say_output_failed(error)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and exit with the code that it returns, or that of its error.

        A note of an interruption or of an error says how to go on.
        """
        try:
            with stoppable(), quiet_libraries():
                ctx.exit(super().invoke(ctx) or 0)
        except ForecasterError as error:
            stored = isinstance(error, WriteError | StoreError)
            elsewhere = stored and isinstance(error.__cause__, OSError)
            notes = getattr(error, "__notes__", ()) if stored else ()  # libraries add some, too
            where = " (--home for data and models)" if elsewhere else ""
            say(f"Error: {'. '.join([str(error), *notes])}{where}")
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:
            if error.filename is None:
                say_output_failed(error)
            else:
                say(f"Error: {error.filename}: {error.strerror or error}")
            ctx.exit(1)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and _OUT_OF_MEMORY not in str(error):
                raise
            say(
                f"Error: out of memory: {str(error)[:200] or 'no reason given'}. Smaller settings "
                "(--horizon, --lookback, --hidden), fewer series or --memory need less"
            )
            ctx.exit(1)
        except KeyboardInterrupt as error:
            again = ["Nothing is left half-written; run the same command again."]
            with contextlib.suppress(OSError):  # the terminal may be gone
                say(" ".join([f"{word(error)}.", *getattr(error, "__notes__", again)]))
            ctx.exit(exit_code(error))


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


class Stopped(KeyboardInterrupt):
    """A signal asks the program to end. Code that saves its state on Ctrl-C saves it here too."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_code(interruption: KeyboardInterrupt) -> int:
    """Return the code that a shell expects after a signal: 130 for Ctrl-C, 143 for SIGTERM."""
    number = interruption.number if isinstance(interruption, Stopped) else signal.SIGINT
    return 128 + number


def word(interruption: KeyboardInterrupt) -> str:
    """Return what happened, as the beginning of a message."""
    if isinstance(interruption, Stopped):
        return f"Stopped by {interruption}"
    return "Interrupted"


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into :class:`Stopped`, as Python turns Ctrl-C into KeyboardInterrupt.

    Only the first signal counts: a second one, which batch systems often send, must not interrupt
    the writing of a checkpoint. A signal that is ignored, as SIGHUP under ``nohup``, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped = False
    timers: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            raise Stopped(number)

    def lost(unraisable: "sys.UnraisableHookArgs") -> None:
        nonlocal stopped
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            return told(unraisable)
        stopped = False
        number = exit_code(unraisable.exc_value) - 128
        timers.append(threading.Timer(_AGAIN, os.kill, (os.getpid(), number)))
        timers[-1].start()

    numbers = [getattr(signal, name) for name in _SIGNALS]
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) == signal.SIG_DFL}
    told = sys.unraisablehook
    for number in before:
        signal.signal(number, stop)
    # Python drops exceptions raised during garbage collection, where JAX has callbacks; the hook
    # then sends the signal again.
    sys.unraisablehook = lost
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = told
        for number, handler in before.items():
            signal.signal(number, handler)
