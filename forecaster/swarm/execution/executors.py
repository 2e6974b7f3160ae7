"""Where work is done: in this process, or on the workers of an executor."""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from forecaster.swarm.devices.lanes import lane_mesh

_Common = TypeVar("_Common")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Failed(NamedTuple):
    """Stands for the result of a part that no worker could do; ``reason``: of the last failure."""

    reason: str


class Executor(Protocol):
    """Does the parts of some work, each on a worker that is free.

    - ``is_local``: whether parts are done in this process, one after another
    - ``members_per_shard``: the size of a fit's shards; None: all members where ``is_local``,
      elsewhere at most 32 chunks for each device of a worker
    """

    @property
    def is_local(self) -> bool: ...  # noqa: D102

    @property
    def members_per_shard(self) -> int | None: ...  # noqa: D102

    def lanes(self) -> Sequence[int]:
        """Return the number of devices of each worker that is there now."""
        ...

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """Yield each part with ``function(common, part)``, in the order in which they are done.

        - ``function``, ``common``, ``parts``: can be pickled
        - ``common``: is sent once, however many parts there are
        - ``parts``: the next is taken when a worker is free, so that fast workers do more
        - ``per_core``: each part is work of one thread, so that a machine does one on each core

        A part whose worker is lost goes to another worker. After some attempts it is
        :class:`Failed`, and the rest goes on. Exceptions of ``function`` are raised here.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Local:
    """Does all work in this process; fits train on its lanes.

    ``members_per_shard``: the size of a fit's shards; None: all members in one, which is fastest.
    """

    members_per_shard: int | None = None

    @property
    def is_local(self) -> bool:
        """True: parts are done in this process."""
        return True

    def lanes(self) -> Sequence[int]:
        """Return the number of devices of this process."""
        return [lane_mesh().size]

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """Do the parts one after another; see :class:`Executor`."""
        del per_core
        for part in parts:
            yield part, function(common, part)
