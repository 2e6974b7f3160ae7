"""What can be told of a fit or an evaluation that is under way."""

import dataclasses
import time

EVALUATION = "evaluation"
"""In place of a model, in the name of an evaluation that is under way."""


def command_of(name: str) -> str:
    """The command that continues what has this name."""
    return "evaluate" if name.endswith(f"-{EVALUATION}") else "fit"


@dataclasses.dataclass(frozen=True)
class UnfinishedStatus:
    """What can be told of an unfinished fit from outside.

    - ``name``: what it is resumed by
    - ``what``: series, source and kind of network, or why it cannot be read
    - ``saved``: seconds since 1970 when its progress was last kept; None: there is none yet
    - ``running``: whether a process trains it
    - ``holder``: which process, where that can be told
    - ``shards``: how many are finished, of a fit in shards, and of how many at most; else None
    """

    name: str
    what: str
    saved: float | None
    running: bool
    holder: str
    shards: tuple[int, int] | None = None

    @property
    def command(self) -> str:
        """What continues it."""
        return command_of(self.name)

    @property
    def progress(self) -> str:
        """Since when it has some."""
        if self.saved is None:
            return "none yet"
        done = "" if self.shards is None else "{} of {} shards done, ".format(*self.shards)
        return f"{done}kept at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.saved))}"

    def __str__(self) -> str:
        return f"{self.name}: {self.what}, progress {self.progress}"
