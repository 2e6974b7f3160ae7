"""Start and watch the workers of a Ray cluster: one per node, or one per core."""

import collections
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forecaster.distributed import worker as _worker
from forecaster.distributed.queue import TRIES, Lost, Worker
from forecaster.errors import ClusterError
from forecaster.swarm import Task

_LOOK_EVERY = 5.0  # seconds between two searches for new nodes
_LONGEST_WAIT = 60.0  # seconds without any worker after which the work is given up
_NO_ROOM = ("RESOURCE_EXHAUSTED", "No space left on device")


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


class RayCrew:
    """Workers on all nodes, including those that join later; lost workers are replaced.

    - ``ray``: the library, connected
    - ``expected``: the versions that a worker must have to get work
    - ``per_core``: whether to have a worker for each core instead of one for each node
    - ``notice``: called with a message when a node is refused
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
        self._ray, self._expected, self._notice = ray, expected, notice
        ray.cloudpickle.register_pickle_by_value(_worker)
        self._class = ray.remote(max_restarts=0, max_task_retries=0)(_worker.NodeWorker)
        self._actors: dict[Worker, Any] = {}
        # The worker and the method by awaited object.
        self._awaited: dict[Any, tuple[Worker, str]] = {}
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._nodes: dict[str, Node] = {}
        # Number of losses in a row, by node.
        self._losses: collections.Counter[str] = collections.Counter()
        self._refused: dict[str, str] = {}  # the reason by node that gets no work
        self._arithmetic: dict[str, str] = {}
        self._work: Any = None
        self._looked = 0.0  # when nodes were last listed
        self._had_workers = time.monotonic()  # when there last was a worker

    def begin(self, function: Any, common: Any) -> None:
        """Start new work: send its function and its first argument once to each node."""
        task, pickled = getattr(common, "task", None), None
        if isinstance(task, Task):
            common, pickled = common._replace(task=None), self._ray.cloudpickle.dumps(task)
        self._work = self._ray.put((function, common, pickled))
        self._had_workers = time.monotonic()
        for worker in self._idle:
            self._ask(worker, "begin", self._work)

    def idle(self) -> Sequence[Worker]:
        """Return the workers that wait for a part."""
        self._look()
        return list(self._idle)

    def nodes(self) -> set[str]:
        """Return the machines that have workers, including those that are starting."""
        return {worker.node for worker in self._actors}

    def give(self, worker: Worker, part: object) -> None:
        """Hand a part to an idle worker."""
        self._idle.remove(worker)
        self._busy.add(worker)
        self._ask(worker, "work", part)

    def wait(self) -> Sequence[tuple[Worker, object]]:
        """Return the workers that have ended a part, with their results; see :meth:`Crew.wait`."""
        self._look()
        if self._awaited:
            ready, _ = self._ray.wait(list(self._awaited), timeout=1.0)
        else:
            ready = []
            time.sleep(0.2)
        ended = [each for ref in ready for each in self._answered(ref)]
        if self._busy or self._idle or ended:
            self._had_workers = time.monotonic()
        elif not self._expects_workers() or time.monotonic() - self._had_workers > _LONGEST_WAIT:
            raise ClusterError(self._no_workers())
        return ended

    def stop(self, *, all_of_them: bool = False) -> None:
        """Stop the workers that are still busy, or all workers."""
        for worker in list(self._actors) if all_of_them else list(self._busy):
            self._remove(worker)
        self._work = None

    def _ask(self, worker: Worker, what: str, *args: object) -> None:
        self._awaited[getattr(self._actors[worker], what).remote(*args)] = worker, what

    def _look(self) -> None:
        """Start workers on nodes that lack them."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        self._nodes = {node.id: node for node in Node.all(self._ray)}
        there = collections.Counter(worker.node for worker in self._actors)
        for node in self._nodes.values():
            wanted = node.cores if self.per_core else 1
            if node.id not in self._refused:
                for _ in range(wanted - there[node.id]):
                    self._start(node)

    def _start(self, node: Node) -> None:
        worker = Worker(node.id, node.name)
        cores, strategies = 1 if self.per_core else node.cores, self._ray.util.scheduling_strategies
        options = self._class.options(
            num_cpus=cores,
            num_gpus=0 if self.per_core else node.gpus,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        self._actors[worker] = options.remote(cores)
        self._ask(worker, "versions")

    def _remove(self, worker: Worker) -> None:
        self._ray.kill(self._actors.pop(worker))
        self._awaited = {ref: asked for ref, asked in self._awaited.items() if asked[0] != worker}
        self._busy.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)

    def _answered(self, ref: Any) -> list[tuple[Worker, object]]:
        """Process an answer; return the worker and its result if it ended a part."""
        if ref not in self._awaited:  # the worker was removed meanwhile
            return []
        worker, what = self._awaited.pop(ref)
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref)
        except errors.RayTaskError as error:
            return self._raised(worker, what, error.cause)
        except (errors.RayError, MemoryError) as error:
            return self._lost(worker, _first_line(error))
        return self._heard(worker, what, answer)

    def _raised(self, worker: Worker, what: str, error: Exception) -> list[tuple[Worker, object]]:
        """Treat a worker without memory or disk space as lost; raise errors of the work itself."""
        reason = _first_line(error)
        if isinstance(error, MemoryError) or any(each in reason for each in _NO_ROOM):
            return self._lost(worker, reason)
        if what in ("versions", "start"):
            self._refuse(worker, f"cannot start ({reason})")
            return []
        if what == "begin":
            raise ClusterError(
                f"{worker.name} cannot load the work ({reason}); a network of your own must be in "
                "a module that is installed on every node"
            ) from error
        raise error

    def _heard(self, worker: Worker, what: str, answer: Any) -> list[tuple[Worker, object]]:
        """Process a worker's answer; return worker and result if it ended a part."""
        if what == "work":
            self._losses[worker.node] = 0
            self._busy.discard(worker)
            self._idle.append(worker)
            return [(worker, answer)]
        if what == "versions":
            others = [
                f"{name} {answer.get(name)} (here {wanted})"
                for name, wanted in self._expected.items()
                if answer.get(name) != wanted
            ]
            if others:
                self._refuse(worker, f"has {', '.join(others)}")
            elif self.per_core:
                self._admit(worker)
            else:
                self._ask(worker, "start")
        elif what == "start":
            first = self._arithmetic = self._arithmetic or answer
            if answer == first:
                self._admit(worker)
            else:
                differs = [f"{n} {answer.get(n)} (others {first[n]})" for n in first]
                self._refuse(worker, f"computes with {', '.join(differs)}")
        return []

    def _admit(self, worker: Worker) -> None:
        self._idle.append(worker)
        if self._work is not None:
            self._ask(worker, "begin", self._work)

    def _refuse(self, worker: Worker, why: str) -> None:
        if worker.node not in self._refused:
            self._refused[worker.node] = why
            self._notice(f"{worker.name} {why}: it gets no work.")
        self._remove(worker)

    def _lost(self, worker: Worker, reason: str) -> list[tuple[Worker, object]]:
        """Remove a lost worker; refuse its node after too many losses in a row.

        Returns the worker with :class:`Lost` if it was busy.
        """
        busy = worker in self._busy
        self._remove(worker)
        self._looked = 0.0
        self._losses[worker.node] += 1
        if self._losses[worker.node] >= TRIES and worker.node in self._nodes:
            self._refuse_node(worker, f"lost {TRIES} workers in a row, the last: {reason}")
        return [(worker, Lost(reason))] if busy else []

    def _refuse_node(self, worker: Worker, why: str) -> None:
        if worker.node not in self._refused and len(self.nodes() - {worker.node}):
            self._refused[worker.node] = why
            self._notice(f"{worker.name} {why}: it gets no more work.")

    def _expects_workers(self) -> bool:
        """Return whether workers are starting, or no node has been found yet."""
        return bool(self._actors) or not self._nodes

    def _no_workers(self) -> str:
        """Return the error message that says why no node has a worker."""
        names = {number: node.name for number, node in self._nodes.items()}
        lines = [
            f"  {names.get(number, number[:8])} {why}" for number, why in self._refused.items()
        ]
        lines += [
            f"  {worker.name}: its cores are taken by other work, or it does not answer"
            for worker in self._actors
        ]
        reasons = "\n".join(lines) or "  it has no node with a core to work on"
        return (
            f"the Ray cluster has no worker:\n{reasons}\nSee `ray status`; finished parts are kept"
        )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
