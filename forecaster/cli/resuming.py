"""Say how to continue interrupted work, and refuse options that contradict --resume."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import click

from forecaster.cli.shared import say
from forecaster.cli.stopping import exit_code, word
from forecaster.errors import UsageError, WriteError

if TYPE_CHECKING:
    from forecaster.storage import UnfinishedFit

THE_ONLY = ""
"""The value of --resume without a name: resume the only interrupted fit."""
THE_LATEST = ""
"""The value of --update without a name: continue the run that a prediction would take."""


def refuse_others(
    ctx: click.Context, option: str, why: str, but: str | Collection[str] = ()
) -> None:
    """Raise UsageError if other options were given beside this one, apart from those in ``but``.

    ``why``: continues "--option" in the message.
    """
    from click.core import ParameterSource

    allowed = {but} if isinstance(but, str) else set(but)
    for name in ctx.params.keys() - {"home", option} - allowed:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{option} {why}; leave out --{name.replace('_', '-')}")


@contextlib.contextmanager
def resumable(command: str = "fit") -> Iterator[Callable[["UnfinishedFit"], None]]:
    """Say how to continue if the block is interrupted, or its result cannot be written.

    ``command``: the command that continues it. Yields a function to call with the fit once it has
    begun.
    """
    begun: list[UnfinishedFit] = []
    try:
        yield begun.append
    except KeyboardInterrupt as error:
        if not (begun and begun[0].has_progress):
            raise
        with contextlib.suppress(OSError):  # the terminal may be gone
            say(f"{word(error)}. {_how_to_resume(begun[0], command)}")
        raise SystemExit(exit_code(error)) from None
    except WriteError as error:
        if not (begun and begun[0].has_progress):
            raise
        raise WriteError(f"{error}. {_how_to_resume(begun[0], command)}") from error.__cause__


def _how_to_resume(unfinished: "UnfinishedFit", command: str) -> str:
    others = len(list(unfinished.folder.parent.glob("*/"))) > 1
    name = f" {unfinished.name}" if others else ""
    return f"Continue with `forecaster {command} --resume{name}`."
