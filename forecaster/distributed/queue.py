"""Hand out parts of work from one queue to all workers; hand out lost parts again.

Knows nothing of Ray.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from forecaster.swarm import Failed

TRIES = 3  # how often a part is tried before it is given up

_Part = TypeVar("_Part")


@dataclasses.dataclass(frozen=True, eq=False)
class Worker:
    """A process that does one part after another.

    - ``node``: the id of its machine
    - ``name``: the machine's name in messages
    """

    node: str
    name: str


class Lost(NamedTuple):
    """Takes the place of a result if the worker was lost, or lacked memory or disk space."""

    reason: str


class Crew(Protocol):
    """A changing set of workers."""

    def idle(self) -> Sequence[Worker]:
        """Return the workers that wait for a part."""
        ...

    def nodes(self) -> set[str]:
        """Return the machines that have workers, including those that are starting."""
        ...

    def give(self, worker: Worker, part: object) -> None:
        """Hand a part to an idle worker."""
        ...

    def wait(self) -> Sequence[tuple[Worker, object]]:
        """Return the workers that have ended a part, with the result or :class:`Lost`.

        The list may be empty. Raises the error that a part's function has raised, and ClusterError
        if no worker is left.
        """
        ...


@dataclasses.dataclass
class _Task(Generic[_Part]):
    """A part, and the machines on which it was lost."""

    part: _Part
    nodes: list[str] = dataclasses.field(default_factory=list)


def dispatch(
    crew: Crew, parts: Iterable[_Part], notice: Callable[[str], None]
) -> Generator[tuple[_Part, object], None, None]:
    """Hand all parts to workers; yield each part with its result, or with Failed, as parts end.

    - ``crew``: the workers
    - ``parts``: the next part is made only when a worker is idle
    - ``notice``: called with a message at every loss
    """
    fresh = _Parts(parts)
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
                notice(f"The work of {worker.name} was lost ({outcome.reason}); it is done again.")
                again.append(task)
            else:
                notice(f"The work of {worker.name} was lost ({outcome.reason}); it is given up.")
                yield task.part, Failed(f"its workers were lost {tries} times: {outcome.reason}")


class _Parts(Generic[_Part]):
    """An iterator over parts that can tell whether it is at its end.

    To find out, it makes the next part; so ``over`` is asked only while no worker is busy.
    """

    def __init__(self, parts: Iterable[_Part]):
        self._parts = iter(parts)
        self._held: list[_Part] = []

    def take(self) -> list[_Part]:
        """Return the next part in a list; an empty list at the end."""
        held, self._held = self._held, []
        return held or list(itertools.islice(self._parts, 1))

    @property
    def over(self) -> bool:
        """Whether no part is left."""
        self._held = self.take()
        return not self._held


def _next(
    worker: Worker,
    nodes: set[str],
    again: "collections.deque[_Task[_Part]]",
    fresh: _Parts[_Part],
) -> _Task[_Part] | None:
    """Return the next task for a worker: one that was lost on other machines, or else a new one.

    A task that was lost on this machine is tried here again only if it was lost on all machines.
    """
    for task in again:
        if worker.node not in task.nodes or nodes <= set(task.nodes):
            again.remove(task)
            return task
    return next((_Task(part) for part in fresh.take()), None)
