"""A swarm gives the results of members trained one by one, and members never interact."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm import LSTM, Status
from forecaster.swarm.execution.schedule import compiled
from tests.slow import rest_slow, slow
from tests.swarm.processes import run_python

MEMBERS, EXAMPLES = 11, 24
IDS = [f"member {i}" for i in range(MEMBERS)]
HYPERPARAMS = {"learning_rate": 1e-2, "weight_decay": 1e-3, "clip": 1.0}
STILL = {"learning_rate": 0.0, "weight_decay": 0.0}
LIMITS: dict[str, Any] = {"epochs": 12, "patience": 3}


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(6, 8, rngs=rngs)
        self.out = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):  # (example, 3, 2)
        return self.out(jnp.tanh(self.inner(x.reshape(len(x), -1))))


class SmallLSTM(nnx.Module):
    def __init__(self, rngs):
        self.cell = LSTM(2, 4, rngs=rngs)
        self.out = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.cell(x.swapaxes(0, 1), jnp.ones(x.shape[1::-1]))[-1])


def squared(predictions, targets):
    return (predictions - targets) ** 2


TASKS = {
    kind.__name__: swarm.supervised(kind, squared, batch_size=8) for kind in (Perceptron, SmallLSTM)
}


def make_data() -> swarm.Supervised:
    random = np.random.default_rng(0)
    x = random.normal(size=(MEMBERS, EXAMPLES, 3, 2)).astype(np.float32)
    y = x.sum((2, 3))[..., None] * 0.3 + random.normal(size=(MEMBERS, EXAMPLES, 1)) * 0.1
    weight = np.ones((MEMBERS, EXAMPLES), np.float32)
    weight[3, 10:] = 0  # a member with less data
    y = y.astype(np.float32)
    return swarm.Supervised(x, y, weight, x[:, :8], y[:, :8], weight[:, :8])


@pytest.fixture(scope="module")
def data() -> swarm.Supervised:
    return make_data()


def run(task, data, ids=IDS, seed=5, hyperparams=HYPERPARAMS, **options):
    options = LIMITS | options
    return swarm.fit(task, data, ids, seed=seed, hyperparams=hyperparams, **options)


def rows(tree, rows):
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def same(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("kind", rest_slow(TASKS))
def test_a_swarm_is_a_loop_over_single_members(kind, data):
    result = run(TASKS[kind], data)
    keys = swarm.member_keys(5, IDS)
    hyperparams = {name: jnp.asarray(value) for name, value in HYPERPARAMS.items()}
    for k in (0, 3, MEMBERS - 1):
        key = jnp.asarray(keys[k])
        alone = swarm.train_one(TASKS[kind], key, rows(data, k), hyperparams, **LIMITS)
        assert result.epochs[k] == alone.epoch
        assert result.best_epoch[k] == alone.best_epoch
        assert result.status[k] == alone.status
        leaves = jax.tree.leaves(rows(result.params, k)), jax.tree.leaves(alone.best_params)
        for a, b in zip(*leaves, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)


@pytest.mark.usefixtures("as_for_users")
@pytest.mark.parametrize("kind", [pytest.param("Perceptron", marks=pytest.mark.slow), "SmallLSTM"])
def test_order_and_company_change_nobody(kind, data):
    everyone = run(TASKS[kind], data)
    order = np.random.default_rng(1).permutation(MEMBERS)[:-2]  # shuffled, and two removed
    for count in (len(order), 3, 1):
        left = order[:count]
        some = run(TASKS[kind], rows(data, left), [IDS[i] for i in left])
        assert same(rows(everyone.params, left), some.params)
        assert np.array_equal(everyone.best_loss[left], some.best_loss)


@pytest.mark.slow
def test_many_devices_and_the_form_for_gpus_learn_the_same(data, tmp_path):
    """Eight devices in a process of its own, scans as GPUs get them, all members in one launch."""
    code = (
        "import sys\n"
        "from tests.swarm.test_fitting import *\n"
        "from tests.swarm.test_recurrence import as_on_gpus\n"
        "assert jax.local_device_count() == 8\n"
        "with as_on_gpus(9):\n"
        "    fitted = run(TASKS['SmallLSTM'], make_data(), chunk=16)\n"
        "np.savez(sys.argv[1], *jax.tree.leaves(fitted.params), epochs=fitted.epochs)\n"
    )
    run_python(code, tmp_path / "out.npz", devices=8, FORECASTER_KERNEL="off")
    expected, others = run(TASKS["SmallLSTM"], data), np.load(tmp_path / "out.npz")
    assert np.array_equal(expected.epochs, others["epochs"])
    for number, leaf in enumerate(jax.tree.leaves(expected.params)):
        np.testing.assert_allclose(others[f"arr_{number}"], leaf, rtol=2e-3, atol=2e-5)


def test_members_stop_by_themselves_and_keep_the_best_weights(data):
    patience = np.full(MEMBERS, 50)
    patience[:5] = 1
    rate = np.where(np.arange(MEMBERS) < 5, 1.0, 1e-3)  # the first five overshoot at once
    hyperparams = HYPERPARAMS | {"learning_rate": rate}
    fitted = run(TASKS["Perceptron"], data, hyperparams=hyperparams, patience=patience)
    assert (fitted.status[:5] == Status.STOPPED_EARLY).all()
    assert (fitted.status[5:] == Status.FINISHED).all()
    assert fitted.epochs[:5].max() < fitted.epochs[5:].min()
    seen = fitted.losses.validation
    for k in range(MEMBERS):
        assert np.isfinite(seen[k, : fitted.epochs[k]]).all()
        assert np.isnan(seen[k, fitted.epochs[k] :]).all()
        if fitted.status[k] == Status.STOPPED_EARLY:
            assert fitted.epochs[k] == fitted.best_epoch[k] + patience[k]
        validate = TASKS["Perceptron"].validate
        assert validate is not None
        best = validate(rows(fitted.params, k), rows(data, k), {})
        np.testing.assert_allclose(best, fitted.best_loss[k], rtol=1e-5)
        if fitted.best_epoch[k]:
            assert fitted.best_loss[k] == seen[k, fitted.best_epoch[k] - 1] == np.nanmin(seen[k])


def test_members_stop_at_their_own_epoch_and_without_examples_nothing_changes(data):
    task, limits = swarm.supervised(Perceptron, squared, validated=False), np.arange(MEMBERS) + 1
    given = data._replace(weight=np.where(np.arange(MEMBERS)[:, None] == 4, 0, data.weight))
    fitted = run(task, given, epochs=limits, patience=None)
    assert (fitted.epochs == limits).all() and (fitted.status == Status.FINISHED).all()
    assert (np.isfinite(fitted.losses.train).sum(1) == limits).all()
    for k in (0, 4, 9):
        some = rows(given, [k])
        alone = run(task, some, [IDS[k]], epochs=limits[k], patience=None)
        assert same(rows(fitted.params, [k]), alone.params)
        untrained = run(task, some, [IDS[k]], epochs=1, hyperparams=HYPERPARAMS | STILL)
        assert same(alone.params, untrained.params) == (k == 4)


def test_the_seed_decides(data):
    task = TASKS["Perceptron"]
    assert same(run(task, data, seed=1).params, run(task, data, seed=1).params)
    assert not same(run(task, data, seed=1).params, run(task, data, seed=2).params)


def test_progress_reaches_the_end(data):
    compiled.cache_clear()
    seen, again = [], []
    run(TASKS["Perceptron"], data, on_progress=seen.append)
    assert [p.compiling for p in seen] == [True] + [False] * (len(seen) - 1)
    assert seen[0].epochs_done == 0 < seen[1].epochs_done
    run(TASKS["Perceptron"], data, on_progress=again.append)
    assert not any(p.compiling for p in again)  # what is compiled already is not announced
    assert [p.stopped for p in seen] == sorted(p.stopped for p in seen)
    assert seen[-1].stopped == seen[-1].members == MEMBERS
    assert seen[-1].epochs_done == seen[-1].epochs_at_most


@pytest.mark.parametrize(("dtype", "within"), [("float32", 1e-4), slow("float64", 1e-9)])
def test_learning_is_a_plain_loop_in_either_precision(data, dtype, within):
    """After 40 steps on all examples; the benchmark's tests compare with PyTorch, too."""
    functions, k, adam = swarm.module_functions(SmallLSTM), 6, optax.adam(2.0**-8)

    def error(params, x, y):
        return squared(functions.apply(params, x), y).mean()

    with jax.enable_x64(dtype == "float64"):
        data = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), data)
        cast = functions._replace(
            init=lambda key: jax.tree.map(lambda leaf: leaf.astype(dtype), functions.init(key))
        )
        task = swarm.supervised(cast, squared, optimizer=adam, validated=False)
        still = swarm.supervised(cast, squared, optimizer=optax.sgd(0.0), validated=False)
        params = start = rows(run(still, data, epochs=1, patience=1).params, k)
        fitted = rows(run(task, data, epochs=40, patience=40).params, k)
        state, gradient = adam.init(params), jax.jit(jax.grad(error))
        for _ in range(40):
            grads = gradient(params, data.inputs[k], data.targets[k])
            updates, state = adam.update(grads, state)
            params = optax.apply_updates(params, updates)
    leaves = (jax.tree.leaves(tree) for tree in (start, fitted, params))
    for before, ours, plain in zip(*leaves, strict=True):
        assert ours.dtype == dtype and (moved := np.linalg.norm(plain - before)) > 0.05
        assert np.linalg.norm(ours - plain) < within * moved
