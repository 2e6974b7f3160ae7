"""One queue for all workers: who gets which part, and what becomes of a part that was lost.

Knows nothing of Ray.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from forecaster.swarm import Failed

TRIES = 3  # of a part, before it is given up

_Part = TypeVar("_Part")


@dataclasses.dataclass(frozen=True, eq=False)
class Worker:
    """A process that does one part after another.

    - ``node``: the machine it runs on
    - ``name``: what the machine is called in messages
    """

    node: str
    name: str


class Lost(NamedTuple):
    """In place of a result: the worker is gone, or had no room for the part; the reason."""

    reason: str


class Crew(Protocol):
    """The workers that are there."""

    def idle(self) -> Sequence[Worker]:
        """Workers that wait for a part."""
        ...

    def nodes(self) -> set[str]:
        """The machines that have workers, or are about to."""
        ...

    def give(self, worker: Worker, part: object) -> None:
        """Hand a part to an idle worker."""
        ...

    def wait(self) -> Sequence[tuple[Worker, object]]:
        """Workers that have ended since, with the result or :class:`Lost`; perhaps none.

        Raises what a part's function has raised, and ClusterError when nobody is left to wait for.
        """
        ...


@dataclasses.dataclass
class _Task(Generic[_Part]):
    """A part, and the machines that it was lost on."""

    part: _Part
    nodes: list[str] = dataclasses.field(default_factory=list)


def dispatch(
    crew: Crew, parts: Iterable[_Part], notice: Callable[[str], None]
) -> Generator[tuple[_Part, object], None, None]:
    """Have all parts done; yields each with its result, or with Failed, in the order they end.

    - ``crew``: who does them
    - ``parts``: the next is taken when a worker is idle
    - ``notice``: told of every loss
    """
    fresh = _Ahead(parts)
    again: collections.deque[_Task[_Part]] = collections.deque()
    busy: dict[Worker, _Task[_Part]] = {}
    while True:
        for worker in crew.idle():
            task = _next(worker, crew.nodes(), again, fresh)
            if task is not None:
                crew.give(worker, task.part)
                busy[worker] = task
        if not busy and not again and fresh.over:
            return
        for worker, outcome in crew.wait():
            task = busy.pop(worker)
            if not isinstance(outcome, Lost):
                yield task.part, outcome
                continue
            task.nodes.append(worker.node)
            tries = len(task.nodes)
            if tries < TRIES:
                notice(f"Lost what {worker.name} was doing ({outcome.reason}); it is done again.")
                again.append(task)
            else:
                notice(f"Lost what {worker.name} was doing ({outcome.reason}); given up.")
                yield task.part, Failed(f"its workers were lost {tries} times: {outcome.reason}")


class _Ahead(Generic[_Part]):
    """Parts of which the next is not made before it is asked for, or nobody is busy any more."""

    def __init__(self, parts: Iterable[_Part]):
        self._parts = iter(parts)
        self._held: list[_Part] = []

    def take(self) -> list[_Part]:
        """The next part; none at the end."""
        held, self._held = self._held, []
        return held or list(itertools.islice(self._parts, 1))

    @property
    def over(self) -> bool:
        """Whether there is none."""
        self._held = self.take()
        return not self._held


def _next(
    worker: Worker,
    nodes: set[str],
    again: "collections.deque[_Task[_Part]]",
    fresh: _Ahead[_Part],
) -> _Task[_Part] | None:
    """What was lost on another machine comes first; where there is none, this one tries again."""
    for task in again:
        if worker.node not in task.nodes or nodes <= set(task.nodes):
            again.remove(task)
            return task
    return next((_Task(part) for part in fresh.take()), None)
