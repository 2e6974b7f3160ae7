"""Where the shards of a fit train: in this process, or wherever an executor takes them."""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from forecaster.swarm.devices.lanes import lane_mesh

_Common = TypeVar("_Common")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Failed(NamedTuple):
    """In place of a result: no worker could do a part of the work. ``reason``: of the last try."""

    reason: str


class Executor(Protocol):
    """Does parts of some work, each on whichever worker is free.

    - ``is_local``: whether parts are done in this process, one after another
    - ``members_per_shard``: of a fit; None: all where ``is_local``, elsewhere as many as train for
      about ten seconds
    """

    @property
    def is_local(self) -> bool: ...  # noqa: D102

    @property
    def members_per_shard(self) -> int | None: ...  # noqa: D102

    def lanes(self) -> Sequence[int]:
        """The devices of each worker that is there now."""
        ...

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """Each part and ``function(common, part)``, in the order in which they are done.

        - ``function``: can be pickled, as can ``common`` and parts
        - ``common``: goes out once, however many parts there are
        - ``parts``: the next is taken when a worker is free, so that fast workers do more
        - ``per_core``: it is work of one thread; a core does a part, not a machine

        A part whose worker is lost goes to another one. After some tries it is :class:`Failed`, and
        the rest goes on. What ``function`` raises is raised here.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Local:
    """Trains on the lanes of this process.

    ``members_per_shard``: of a fit; None: all in one, which is fastest.
    """

    members_per_shard: int | None = None

    @property
    def is_local(self) -> bool:
        """Yes."""
        return True

    def lanes(self) -> Sequence[int]:
        """The devices of this process."""
        return [lane_mesh().size]

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """See :class:`Executor`."""
        del per_core
        for part in parts:
            yield part, function(common, part)
