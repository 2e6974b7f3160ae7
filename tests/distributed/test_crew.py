"""The crew of a cluster with a simulated Ray: losses, retries, refusals."""

import functools
import itertools
import pickle
import types
from typing import Any, cast

import pytest

from forecaster.distributed import crew as crews
from forecaster.distributed.crew import Crew, Node
from forecaster.distributed.worker import NodeWorker
from forecaster.errors import ClusterError
from forecaster.swarm import Failed
from tests.messages import refuses

VERSIONS = {"forecaster": "1", "jax": "2", "python": "3.11"}
CODE = {"backend": "cpu", "kernel": "avx2"}


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Actor:
    """A worker that answers at once; ``node`` holds its versions and what it does with a part."""

    def __init__(self, ray, node):
        self.ray, self.node = ray, node

    def __getattr__(self, what):
        return types.SimpleNamespace(
            remote=lambda *args, **options: self.ray.answer(self, what, args, **options)
        )


class PlayedRay:
    """The part of Ray's interface that a crew uses. ``nodes``: versions, code, ``lose(part)``."""

    exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    cloudpickle = types.SimpleNamespace(register_pickle_by_value=lambda module: None)
    util = types.SimpleNamespace(
        scheduling_strategies=types.SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda number, soft: number
        )
    )

    def __init__(self, **members):
        self.members, self.numbers, self.answers = members, itertools.count(), {}
        self.put_once, self.given, self.killed = [], [], []

    def nodes(self):
        return [
            {
                "NodeID": number,
                "Alive": member.get("alive", True),
                "NodeManagerHostname": "host",
                "Resources": {"CPU": member.get("cores", 1)},
            }
            for number, member in self.members.items()
        ]

    def remote(self, **options):
        started = lambda options: types.SimpleNamespace(  # noqa: E731
            remote=lambda cores: Actor(self, options["scheduling_strategy"])
        )
        return lambda kind: types.SimpleNamespace(options=lambda **o: started(o))

    def put(self, what):
        self.put_once.append(what)
        return what

    def kill(self, actor):
        self.killed.append(actor.node)

    def wait(self, refs, timeout):
        return refs[:1], refs[1:]

    def get(self, ref):
        answer = self.answers.pop(ref)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, actor, what, args, **options):
        member, ref = self.members[actor.node], next(self.numbers)
        self.answers[ref] = getattr(self, what)(actor, member, *args, **options)
        return ref

    def start(self, actor, member, expected, *, per_core):
        found = expected | member.get("versions", {})
        return found if per_core or found != expected else found | CODE | member.get("code", {})

    def work(self, actor, member, of, part):
        self.given.append((actor.node, part))
        function, common, _ = of[0]
        return member.get("lose", lambda part: None)(part) or function(common, part)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(crews, "_LOOK_EVERY", 0.0)
    monkeypatch.setattr(crews, "_LONGEST_WAIT", 0.5)


def run(ray, parts=range(6), function=pow, *, per_core=False):
    """Return the results by part, and the notices."""
    said = []
    crew = Crew(ray, VERSIONS, said.append, per_core=per_core)
    return dict(crew.run(function, 2, parts)), said


EXPECTED = {part: 2**part for part in range(6)}


def test_all_workers_share_one_queue_and_one_copy_of_what_is_common():
    ray = PlayedRay(a={}, b={"cores": 3}, c={"alive": False}, d={"cores": 0})
    assert run(ray) == (EXPECTED, [])
    assert {node for node, _ in ray.given} == {"a", "b"} and ray.put_once == [(pow, 2, None)]
    ray = PlayedRay(a={"cores": 4})
    assert run(ray, per_core=True) == (EXPECTED, [])
    assert Node("a", "host", 4, 0).lanes == 4 and Node("a", "host", 4, 2).lanes == 2


def test_a_part_is_made_only_when_somebody_is_free():
    made, ray = [], PlayedRay(a={})
    crew = Crew(ray, VERSIONS, print, per_core=False)
    results = crew.run(pow, 2, (made.append(part) or part for part in range(9)))
    next(results)
    assert made == [0]


def test_a_lost_part_is_done_on_another_node():
    lost = RayError("the actor died\nunexpectedly")
    ray = PlayedRay(a={"lose": lambda part: lost if part == 2 else None}, b={})
    results, said = run(ray)
    assert results == EXPECTED
    tried = [node for node, part in ray.given if part == 2]
    assert tried in (["a", "b"], ["b"])
    if len(tried) == 2:
        assert said == [
            "The work of host (node a) was lost (RayError: the actor died); it is done again."
        ]


def test_a_lost_part_does_not_wait_for_a_node_that_never_starts():
    class Taken(PlayedRay):  # the cores of b are taken by other work
        starting: dict[int, bool]

        def wait(self, refs, timeout):
            there = [ref for ref in refs if not self.starting.get(ref)]
            return there[:1], refs

        def answer(self, actor, what, args, **options):
            ref = super().answer(actor, what, args, **options)
            self.starting[ref] = actor.node == "b"
            return ref

    lost = [RayError("the actor died")]
    ray = Taken(a={"lose": lambda part: lost.pop() if lost and part == 2 else None}, b={})
    ray.starting = {}
    assert run(ray)[0] == EXPECTED


@pytest.mark.parametrize("nodes", ["a", "ab", "abcd"])
def test_a_part_that_is_lost_three_times_is_given_up_and_the_rest_goes_on(nodes):
    lose = lambda part: RayError("out of memory") if part == 2 else None  # noqa: E731
    ray = PlayedRay(**{node: {"lose": lose} for node in nodes})
    results, said = run(ray)
    reason = "its workers were lost 3 times: RayError: out of memory"
    assert results == EXPECTED | {2: Failed(reason)}
    tried = [node for node, part in ray.given if part == 2]
    assert len(tried) == 3 and len(set(tried)) == min(3, len(nodes))
    assert said[-1].endswith("given up.")


def test_a_worker_that_is_lost_is_replaced_though_all_other_nodes_are_refused():
    lose = lambda part: RayError("out of memory") if part == 2 else None  # noqa: E731
    results, said = run(PlayedRay(a={"lose": lose}, b={"versions": {"jax": "1.9"}}))
    assert isinstance(results[2], Failed) and results | {2: 4} == EXPECTED
    assert sum("was lost" in line for line in said) == 3


def test_what_the_work_itself_raises_is_raised():
    def broken(common, part):
        raise AssertionError

    ray = PlayedRay(a={"lose": lambda part: RayTaskError(KeyError("a bug"))}, b={})
    with pytest.raises(KeyError, match="a bug"):
        run(ray)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"versions": {"jax": "1.9"}}, "has jax 1.9, not 2"),
        ({"versions": {"python": "3.12"}}, "has python 3.12, not 3.11"),
        ({"versions": {"forecaster": "not installed"}}, "has forecaster not installed, not 1"),
        ({"code": {"kernel": "neon"}}, "has kernel neon, not avx2"),
    ],
)
def test_a_node_that_would_compute_something_else_is_refused_by_name(other, said):
    results, told = run(PlayedRay(a={}, b=other))
    assert results == EXPECTED
    assert len(told) == 1 and told[0].startswith(f"host (node b) {said}")
    if "versions" in other:
        with refuses(ClusterError) as error:
            run(PlayedRay(b=other))
        assert said in str(error.value)
        assert run(PlayedRay(a={}, b=other), per_core=True)[0] == EXPECTED


def test_a_cluster_without_a_free_core_is_given_up_soon():
    ray = PlayedRay(a={})
    ray.wait = lambda refs, timeout: ([], refs)
    with refuses(ClusterError):
        run(ray)
    with refuses(ClusterError):
        run(PlayedRay())


def test_a_network_that_a_node_cannot_import_is_named(monkeypatch):
    def missing(ref):
        raise ModuleNotFoundError("No module named 'mine'")

    monkeypatch.setattr(pytest.importorskip("ray"), "get", missing)
    with refuses(ClusterError):
        NodeWorker.__new__(NodeWorker).work([None], 0)


def test_a_task_that_is_sent_again_is_the_same_program(monkeypatch):
    from forecaster.swarm.execution.shards import Job

    monkeypatch.setattr(pytest.importorskip("ray"), "get", lambda ref: ref)
    worker = NodeWorker.__new__(NodeWorker)
    worker._task_of = functools.lru_cache(pickle.loads)
    job = Job(cast(Any, None), None, 5, None, None, 1)
    task_of = lambda job, part: job.task  # noqa: E731
    tasks = [worker.work([(task_of, job, pickle.dumps([name]))], 0) for name in "aba"]
    assert tasks == [["a"], ["b"], ["a"]] and tasks[0] is tasks[2]
