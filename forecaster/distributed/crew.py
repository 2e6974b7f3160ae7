"""Share parts of work among the workers of a Ray cluster: one per node, or one per core."""

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from forecaster.distributed import worker as _worker
from forecaster.errors import ClusterError
from forecaster.swarm import Failed, Task

TRIES = 3  # how often a part is tried before it is given up
_LOOK_EVERY = 5.0  # seconds between two searches for new nodes
_LONGEST_WAIT = 60.0  # seconds without any worker after which the work is given up


class Node(NamedTuple):
    """A machine of the cluster, and the resources that Ray may use there."""

    id: str
    name: str
    cores: int
    gpus: int

    @staticmethod
    def all(ray: Any) -> "list[Node]":
        """Return the nodes that are alive and have at least one core."""
        found = []
        for node in ray.nodes():
            resources = node["Resources"]
            cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
            if node["Alive"] and cores:
                name = f"{node['NodeManagerHostname']} (node {node['NodeID'][:8]})"
                found.append(Node(node["NodeID"], name, cores, gpus))
        return sorted(found)

    @property
    def lanes(self) -> int:
        """The number of devices of a worker that has the whole node."""
        return self.gpus or max(2, self.cores)


@dataclasses.dataclass(eq=False)
class _Part:
    """A part, and the machines on which it was lost."""

    part: Any
    lost_on: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Worker:
    """A process of a node.

    - ``asked``: the answer that Ray will have of it; None while it is idle
    - ``part``: the part that it works on; None while it starts, or is idle
    """

    node: Node
    actor: Any
    asked: Any
    part: _Part | None = None

    @property
    def ready(self) -> bool:
        """Whether it has started."""
        return self.asked is None or self.part is not None


class Crew:
    """Workers on all nodes, including those that join later; lost workers are replaced.

    - ``ray``: the library, connected
    - ``expected``: the versions that a worker must have to get work
    - ``per_core``: whether to have a worker for each core instead of one for each node
    - ``notice``: called with a message at each loss, and when a node is refused
    """

    def __init__(
        self,
        ray: Any,
        expected: dict[str, str],
        notice: Callable[[str], None],
        *,
        per_core: bool,
    ):
        self.per_core = per_core
        self._ray, self._notice = ray, notice
        self._versions = self._expected = expected
        ray.cloudpickle.register_pickle_by_value(_worker)
        self._class = ray.remote(max_restarts=0, max_task_retries=0)(_worker.NodeWorker)
        self._workers: list[_Worker] = []
        self._refused: dict[str, str] = {}  # why a node gets no work, with its name
        self._looked = 0.0  # when nodes were last listed

    def run(
        self, function: Any, common: Any, parts: Iterable[Any]
    ) -> Generator[tuple[Any, Any], None, None]:
        """Hand parts to workers; yield each with its result, or with Failed, as parts end.

        The function and its first argument are sent once to each node. The next part is made only
        when a worker is idle. A part that was lost is tried on other machines first.

        Raises the error that the function has raised, and ClusterError if there is no worker.
        """
        task, pickled = getattr(common, "task", None), None
        if isinstance(task, Task):
            common, pickled = common._replace(task=None), self._ray.cloudpickle.dumps(task)
        work = [self._ray.put((function, common, pickled))]
        fresh, waiting = map(_Part, parts), list[_Part]()
        had_workers = time.monotonic()
        try:
            while waiting or self._busy() or (waiting := [*itertools.islice(fresh, 1)]):
                self._look()
                for worker in self._workers:
                    if worker.asked is None and (part := self._next(worker, waiting, fresh)):
                        worker.part, worker.asked = part, worker.actor.work.remote(work, part.part)
                for worker, answer in self._answers():
                    part, worker.part = worker.part, None
                    if part is None:
                        self._admit(worker, answer)
                    elif not isinstance(answer, Exception):
                        yield part.part, answer
                    elif failed := self._lost(worker, answer, part):
                        yield part.part, failed
                    else:
                        waiting.append(part)
                if any(worker.ready for worker in self._workers):
                    had_workers = time.monotonic()
                elif time.monotonic() - had_workers > _LONGEST_WAIT or (
                    self._refused and not self._workers and self._looked  # not just lost
                ):
                    raise ClusterError(self._no_workers())
        finally:
            for worker in self._busy():
                self._remove(worker)

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.part is not None]

    def stop(self) -> None:
        """Stop all workers."""
        for worker in list(self._workers):
            self._remove(worker)

    def _look(self) -> None:
        """Start workers on nodes that lack them."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        strategies = self._ray.util.scheduling_strategies
        there = collections.Counter(worker.node.id for worker in self._workers)
        for node in Node.all(self._ray):
            cores = 1 if self.per_core else node.cores
            for _ in range(node.cores // cores - there[node.id]):
                if node.id in self._refused:
                    break
                options = self._class.options(
                    num_cpus=cores,
                    num_gpus=0 if self.per_core else node.gpus,
                    scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(
                        node.id, soft=False
                    ),
                )
                actor = options.remote(cores)
                started = actor.start.remote(self._versions, per_core=self.per_core)
                self._workers.append(_Worker(node, actor, started))

    def _next(self, worker: _Worker, waiting: list[_Part], fresh: Iterator[_Part]) -> _Part | None:
        """Return the next part for a worker: one that another machine lost, or a new one.

        A machine that lost a part gets it again only if all ready machines lost it.
        """
        nodes = {one.node.id for one in self._workers if one.ready}
        for part in waiting:
            if worker.node.id not in part.lost_on or nodes <= set(part.lost_on):
                waiting.remove(part)
                return part
        return next(fresh, None)

    def _answers(self) -> Iterator[tuple[_Worker, Any]]:
        """Yield the workers that have answered, with the answer, or the error of a lost worker.

        Raises errors of the work itself.
        """
        asked = {one.asked: one for one in self._workers if one.asked is not None}
        if not asked:
            time.sleep(0.2)
            return
        errors = self._ray.exceptions
        for ref in self._ray.wait(list(asked), timeout=1.0)[0]:
            worker = asked[ref]
            try:
                answer = self._ray.get(ref)
            except errors.RayTaskError as error:
                if worker.part is not None and not isinstance(error.cause, MemoryError):
                    raise error.cause from None
                answer = error.cause
            except errors.RayError as error:
                answer = error
            worker.asked = None
            self._workers.remove(worker)  # Ray looks at the first ones first
            self._workers.append(worker)
            yield worker, answer

    def _admit(self, worker: _Worker, answer: Any) -> None:
        """Let a worker that has started do work, or refuse its node.

        The first worker's kernels are those that all others must have.
        """
        if isinstance(answer, Exception):
            self._refuse(worker, f"cannot start ({_first_line(answer)}): it gets no work")
        elif others := [
            f"{name} {answer.get(name)}, not {wanted}"
            for name, wanted in self._expected.items()
            if answer.get(name) != wanted
        ]:
            self._refuse(worker, f"has {'; '.join(others)}: it gets no work")
        else:
            self._expected = answer

    def _lost(self, worker: _Worker, error: Exception, part: _Part) -> Failed | None:
        """Say that the work of a worker was lost; return Failed after too many tries."""
        self._remove(worker)
        part.lost_on.append(worker.node.id)
        self._looked, reason, tries = 0.0, _first_line(error), len(part.lost_on)
        then = "done again" if tries < TRIES else "given up"
        self._notice(f"The work of {worker.node.name} was lost ({reason}); it is {then}.")
        return None if tries < TRIES else Failed(f"its workers were lost {tries} times: {reason}")

    def _refuse(self, worker: _Worker, why: str) -> None:
        if worker.node.id not in self._refused:
            self._refused[worker.node.id] = f"{worker.node.name} {why}"
            self._notice(f"{worker.node.name} {why}.")
        self._remove(worker)

    def _remove(self, worker: _Worker) -> None:
        self._ray.kill(worker.actor)
        self._workers.remove(worker)

    def _no_workers(self) -> str:
        """Return the error message that says why no node has a worker."""
        why = "its cores are taken by other work, or it does not answer"
        lines = [*self._refused.values(), *(f"{one.node.name}: {why}" for one in self._workers)]
        reasons = "\n  ".join(lines or ["it has no node with a core to work on"])
        return (
            f"the Ray cluster has no worker:\n  {reasons}\nSee `ray status`; finished parts are "
            "kept"
        )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
