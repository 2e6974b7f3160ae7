"""Stop a command from outside: by Ctrl-C, by a batch system, by closing its terminal."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN = 0.05  # seconds
_SIGNALS = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


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
