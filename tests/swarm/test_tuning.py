"""Hyperparameter search with a member per candidate."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm import SwarmError
from forecaster.swarm.estimators.tuning import rungs_of
from tests.messages import refuses
from tests.swarm.test_fitting import same, squared

SERIES, EXAMPLES = 5, 40
IDS = [f"s{i}" for i in range(SERIES)]
LIMITS: dict[str, Any] = {"epochs": 18, "patience": 6}
CANDIDATES = swarm.grid_candidates(learning_rate=[1e-4, 1e-2, 1e30], hidden=[3, 6])


class Network(nnx.Module):
    def __init__(self, hidden, rngs):
        self.inner = nnx.Linear(2, hidden, rngs=rngs)
        self.out = nnx.Linear(hidden, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.inner(x)))


TASKS = {
    hidden: swarm.supervised(lambda rngs, h=hidden: Network(h, rngs), squared, batch_size=8)
    for hidden in (3, 6)
}


def make_task(hidden):
    return TASKS[hidden]


@pytest.fixture(scope="module")
def data() -> swarm.Supervised:
    random = np.random.default_rng(0)
    x = random.normal(size=(SERIES, EXAMPLES, 2)).astype(np.float32)
    y = (np.abs(x).sum(-1, keepdims=True) * np.arange(1, SERIES + 1)[:, None, None]).astype("f4")
    w = np.ones((SERIES, EXAMPLES), np.float32)
    return swarm.Supervised(x[:, 8:], y[:, 8:], w[:, 8:], x[:, :8], y[:, :8], w[:, :8])


def tune(data, candidates=CANDIDATES, **options):
    options = LIMITS | options
    return swarm.tune(make_task, data, IDS, candidates, seed=7, **options)


@pytest.fixture(scope="module")
def tuned(data):
    return tune(data)


@pytest.mark.slow
def test_the_winner_is_what_a_plain_fit_would_have_trained(data, tuned):
    assert sorted(np.concatenate([w.rows for w in tuned.winners])) == list(range(SERIES))
    for winners in tuned.winners:
        rows = winners.rows
        chosen = [tuned.candidates[c] for c in tuned.choice[rows]]
        assert {c["hidden"] for c in chosen} == {winners.size["hidden"]}
        rate = np.array([c["learning_rate"] for c in chosen])
        chosen_data = jax.tree.map(lambda leaf, rows=rows: leaf[rows], data)
        ids = [IDS[row] for row in rows]
        assert winners.result.ids == tuple(ids)
        # A winner that was dropped early has trained for fewer epochs.
        plain = swarm.fit(
            make_task(**winners.size), chosen_data, ids, seed=7,
            hyperparams={"learning_rate": rate},
            epochs=np.maximum(winners.result.epochs, 1), patience=LIMITS["patience"],
        )  # fmt: skip
        for a, b in zip(
            jax.tree.leaves(plain.params), jax.tree.leaves(winners.result.params), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(plain.best_loss, winners.result.best_loss, rtol=1e-5)


def test_worse_candidates_are_given_up_early(tuned):
    kept = [count for count, _ in rungs_of(6, 18)]
    assert rungs_of(6, 18) == [(6, 2), (2, 6), (1, 18)] and kept == [6, 2, 1]
    assert rungs_of(1, 50) == [(1, 50)]
    assert rungs_of(27, 81) == [(27, 3), (9, 9), (3, 27), (1, 81)]
    assert ((tuned.epochs > 2).sum(1) <= 2).all() and ((tuned.epochs > 6).sum(1) <= 1).all()
    assert (tuned.epochs.max(1) > 6).all()  # some trained to the end or to an early stop


@pytest.mark.slow
def test_the_winners_are_swarms_that_train_on(data, tuned):
    swarms = tuned.swarms(lambda hidden: lambda rngs: Network(hidden, rngs), loss=squared)
    assert sorted(name for found in swarms for name in found.ids) == IDS
    for found, winners in zip(swarms, tuned.winners, strict=True):
        assert same(found.params, winners.result.params) and found.seed == 7
        assert (found.hyperparams["learning_rate"] == np.float32(1e-2)).all()
        rows = winners.rows
        held_back = data.validation_inputs[rows], data.validation_targets[rows]
        np.testing.assert_allclose(
            found.evaluate(*held_back), tuned.best_loss[rows, tuned.choice[rows]], rtol=1e-5
        )
        more = found.fit(data.inputs[rows], data.targets[rows], validation_data=held_back, epochs=1)
        assert (more.evaluate(*held_back) <= found.evaluate(*held_back)).all()
    with refuses(SwarmError):
        tuned.swarms(lambda hidden: lambda rngs: Network(hidden + 1, rngs), loss=squared)


def test_interrupted_and_resumed(data, tuned, tmp_path):
    path, seen = tmp_path / "search", []

    def interrupt(progress):
        seen.append(progress)
        if len(seen) in (2, 4):
            raise KeyboardInterrupt

    resumed = None
    for attempt in range(5):
        try:
            checkpoint = swarm.Checkpoint(path, resume=attempt > 0)
            resumed = tune(data, checkpoint=checkpoint, on_progress=interrupt)
            break
        except KeyboardInterrupt:
            continue
    assert resumed is not None and len(seen) > 4
    assert (resumed.best_loss == tuned.best_loss).all() and (resumed.epochs == tuned.epochs).all()
    for a, b in zip(resumed.winners, tuned.winners, strict=True):
        assert same(a.result.params, b.result.params)


def test_random_candidates_lie_in_their_ranges_and_repeat_with_the_seed():
    drawn = swarm.random_candidates(200, seed=1, learning_rate=(1e-4, 1e-1), hidden=[4, 8])
    rates = np.array([c["learning_rate"] for c in drawn])
    assert drawn == swarm.random_candidates(200, seed=1, learning_rate=(1e-4, 1e-1), hidden=[4, 8])
    assert (rates > 1e-4).all() and (rates < 1e-1).all()
    assert abs((rates < 10**-2.5).mean() - 0.5) < 0.12  # uniform in the logarithm
    assert {c["hidden"] for c in drawn} == {4, 8}


@pytest.mark.parametrize(
    "change",
    [
        {"candidates": []},
        {"candidates": [{"hidden": 3}, {"learning_rate": 1.0}]},
        {"hyperparams": {"epochs": 3}},
        {"epochs": 0},
        {"eta": 1},
    ],
)
def test_bad_calls_say_what_is_wrong(data, change):
    with refuses(SwarmError):
        tune(data, **change)
    with refuses(SwarmError):
        swarm.random_candidates(3, learning_rate=(0.0, 1.0))
