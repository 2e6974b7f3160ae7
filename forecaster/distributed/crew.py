"""The workers of a Ray cluster: one per node, or one per core of it."""

import collections
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forecaster.distributed import worker as _worker
from forecaster.distributed.queue import TRIES, Lost, Worker
from forecaster.errors import ClusterError
from forecaster.swarm import Task

_LOOKED_AT = 5.0  # seconds between two looks for nodes that have joined
_SOON = 60.0  # seconds for which somebody may be missing before nobody is expected
_NO_ROOM = ("RESOURCE_EXHAUSTED", "No space left on device")


class Node(NamedTuple):
    """A machine of the cluster, and what of it may be used."""

    number: str
    name: str
    cores: int
    gpus: int

    @staticmethod
    def all(ray: Any) -> "list[Node]":
        """Those that are there and have a core to work on."""
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
        """Devices that a worker of the whole node trains on."""
        return self.gpus or max(2, self.cores)


class RayCrew:
    """Workers on all nodes, also on those that join later; each loss is made good where it can be.

    - ``ray``: the library, connected
    - ``expected``: the versions that a worker must have to be given anything
    - ``per_core``: have a worker for each core instead of one for each node
    - ``notice``: told who is refused, and why
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
        self._waited: dict[Any, tuple[Worker, str]] = {}  # by object: whose answer, to what
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._nodes: dict[str, Node] = {}
        self._losses: collections.Counter[str] = collections.Counter()  # in a row, by node
        self._aside: dict[str, str] = {}  # nodes that are given nothing, and why
        self._arithmetic: dict[str, str] = {}
        self._work: Any = None
        self._looked, self._somebody = 0.0, time.monotonic()

    def begin(self, function: Any, common: Any) -> None:
        """Turn to other work, whose function and first argument go out once to each node."""
        task, pickled = getattr(common, "task", None), None
        if isinstance(task, Task):
            common, pickled = common._replace(task=None), self._ray.cloudpickle.dumps(task)
        self._work = self._ray.put((function, common, pickled))
        self._somebody = time.monotonic()
        for one in self._idle:
            self._ask(one, "begin", self._work)

    def idle(self) -> Sequence[Worker]:
        """Workers that wait for a part."""
        self._look()
        return list(self._idle)

    def nodes(self) -> set[str]:
        """The machines that have workers, or are about to."""
        return {one.node for one in self._actors}

    def give(self, worker: Worker, part: object) -> None:
        """Hand a part to an idle worker."""
        self._idle.remove(worker)
        self._busy.add(worker)
        self._ask(worker, "work", part)

    def wait(self) -> Sequence[tuple[Worker, object]]:
        """Workers that have ended since, with their results; see :class:`Crew`."""
        self._look()
        if self._waited:
            ready, _ = self._ray.wait(list(self._waited), timeout=1.0)
        else:
            ready = []
            time.sleep(0.2)
        ended = [each for ref in ready for each in self._answered(ref)]
        if self._busy or self._idle or ended:
            self._somebody = time.monotonic()
        elif not self._expects() or time.monotonic() - self._somebody > _SOON:
            raise ClusterError(self._nobody())
        return ended

    def stop(self, *, all_of_them: bool = False) -> None:
        """End the workers that are busy with what nobody wants any more, or all."""
        for one in list(self._actors) if all_of_them else list(self._busy):
            self._remove(one)
        self._work = None

    def _ask(self, worker: Worker, what: str, *args: object) -> None:
        self._waited[getattr(self._actors[worker], what).remote(*args)] = worker, what

    def _look(self) -> None:
        """Start workers on nodes that have none."""
        if time.monotonic() - self._looked < _LOOKED_AT:
            return
        self._looked = time.monotonic()
        self._nodes = {node.number: node for node in Node.all(self._ray)}
        there = collections.Counter(one.node for one in self._actors)
        for node in self._nodes.values():
            wanted = node.cores if self.per_core else 1
            if node.number not in self._aside:
                for _ in range(wanted - there[node.number]):
                    self._start(node)

    def _start(self, node: Node) -> None:
        one = Worker(node.number, node.name)
        cores, strategies = 1 if self.per_core else node.cores, self._ray.util.scheduling_strategies
        options = self._class.options(
            num_cpus=cores,
            num_gpus=0 if self.per_core else node.gpus,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.number, soft=False),
        )
        self._actors[one] = options.remote(cores)
        self._ask(one, "versions")

    def _remove(self, worker: Worker) -> None:
        self._ray.kill(self._actors.pop(worker))
        self._waited = {ref: asked for ref, asked in self._waited.items() if asked[0] != worker}
        self._busy.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)

    def _answered(self, ref: Any) -> list[tuple[Worker, object]]:
        """What has come of an answer: the result of a part, if it is one."""
        if ref not in self._waited:  # of a worker that was removed since
            return []
        worker, what = self._waited.pop(ref)
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref)
        except errors.RayTaskError as error:
            return self._raised(worker, what, error.cause)
        except (errors.RayError, MemoryError) as error:
            return self._lost(worker, _first_line(error))
        return self._heard(worker, what, answer)

    def _raised(self, worker: Worker, what: str, error: Exception) -> list[tuple[Worker, object]]:
        """A node without room is as good as lost; any other error would come up anywhere."""
        said = _first_line(error)
        if isinstance(error, MemoryError) or any(each in said for each in _NO_ROOM):
            return self._lost(worker, said)
        if what in ("versions", "start"):
            self._refuse(worker, f"cannot start ({said})")
            return []
        if what == "begin":
            raise ClusterError(
                f"{worker.name} does not understand the work ({said}); a network of your own must "
                "be in a module that is installed on every node"
            ) from error
        raise error

    def _heard(self, worker: Worker, what: str, answer: Any) -> list[tuple[Worker, object]]:
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
        if worker.node not in self._aside:
            self._aside[worker.node] = why
            self._notice(f"{worker.name} {why}: it is given nothing.")
        self._remove(worker)

    def _lost(self, worker: Worker, reason: str) -> list[tuple[Worker, object]]:
        """A worker is gone; another takes its place, unless its node has lost too many in a row."""
        busy = worker in self._busy
        self._remove(worker)
        self._looked = 0.0
        self._losses[worker.node] += 1
        if self._losses[worker.node] >= TRIES and worker.node in self._nodes:
            self._refuse_node(worker, f"lost {TRIES} workers in a row, the last: {reason}")
        return [(worker, Lost(reason))] if busy else []

    def _refuse_node(self, worker: Worker, why: str) -> None:
        if worker.node not in self._aside and len(self.nodes() - {worker.node}):
            self._aside[worker.node] = why
            self._notice(f"{worker.name} {why}: it is given nothing more.")

    def _expects(self) -> bool:
        """Whether somebody is about to come."""
        return bool(self._actors) or not self._nodes

    def _nobody(self) -> str:
        names = {number: node.name for number, node in self._nodes.items()}
        lines = [f"  {names.get(number, number[:8])} {why}" for number, why in self._aside.items()]
        lines += [
            f"  {one.name}: its cores are taken by other work, or it does not answer"
            for one in self._actors
        ]
        said = "\n".join(lines) or "  it has no node with a core to work on"
        return f"the Ray cluster has no worker:\n{said}\nSee `ray status`; what is done is kept"


def _first_line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
