"""A swarm gives the results of members trained one by one, and members never interact."""

import os
import subprocess
import sys
from pathlib import Path
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

MEMBERS, EXAMPLES = 11, 24
IDS = [f"member {i}" for i in range(MEMBERS)]
HYPERPARAMS = {"learning_rate": 1e-2, "weight_decay": 1e-3, "clip": 1.0}
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
        "import sys, numpy as np, jax\n"
        "from tests.swarm.test_fitting import *\n"
        "from tests.swarm.test_recurrence import as_on_gpus\n"
        "assert jax.local_device_count() == 8\n"
        "with as_on_gpus(9):\n"
        "    fitted = run(TASKS['SmallLSTM'], make_data(), chunk=16)\n"
        "np.savez(sys.argv[1], *jax.tree.leaves(fitted.params), epochs=fitted.epochs)\n"
    )
    eight = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    flags = {"XLA_FLAGS": eight, "FORECASTER_KERNEL": "off"}
    command = [sys.executable, "-c", code, str(tmp_path / "out.npz")]
    environment = os.environ | flags | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected, others = run(TASKS["SmallLSTM"], data), np.load(tmp_path / "out.npz")
    assert np.array_equal(expected.epochs, others["epochs"])
    for number, leaf in enumerate(jax.tree.leaves(expected.params)):
        np.testing.assert_allclose(others[f"arr_{number}"], leaf, rtol=2e-3, atol=2e-5)


def test_a_member_that_diverges_is_isolated_and_keeps_its_best_weights(data):
    rate = np.full(MEMBERS, 1e-2)
    rate[2] = 1e30
    inputs = data.inputs.copy()
    inputs[7, 0] = np.inf
    before = run(TASKS["Perceptron"], data)
    after = run(
        TASKS["Perceptron"],
        data._replace(inputs=inputs),
        hyperparams=HYPERPARAMS | {"learning_rate": rate},
    )
    assert list(np.flatnonzero(after.status == Status.DIVERGED)) == [2, 7]
    assert after.epochs[7] == 1 and after.epochs[2] <= 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))
    others = ~np.isin(np.arange(MEMBERS), [2, 7])
    assert same(rows(before.params, others), rows(after.params, others))


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


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), slow("float64", 1e-9)])
def test_learning_is_torchs_learning(data, dtype, tolerance):
    """Same initial weights, batches and optimiser: after 50 steps member k has the weights that
    torch.nn.LSTM has. In float32 by the compiled kernel, where there is one."""
    torch = pytest.importorskip("torch")
    from tests.swarm.test_recurrence import torch_weights

    steps, k = 50, 6
    whole = TASKS["SmallLSTM"]
    with jax.enable_x64(dtype == "float64"):
        data = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), data)
        task = swarm.Task(
            init=lambda key: jax.tree.map(lambda leaf: leaf.astype(dtype), whole.init(key)),
            loss=whole.loss,
            # All examples, in order, once an epoch, so that the batches are known.
            batches=lambda data, key: (
                (jnp.arange(EXAMPLES)[None], jnp.ones((1, EXAMPLES), dtype)),
                jnp.ones(1, bool),
            ),
            take=whole.take,
            validate=None,
            optimizer=lambda hyperparams: optax.adam(jnp.asarray(hyperparams["learning_rate"])),
        )
        rate = 2.0**-8  # the same number in every precision
        limits = {"epochs": steps, "patience": steps}
        untrained = run(task, data, hyperparams={"learning_rate": 0.0}, **limits).params
        fitted = run(task, data, hyperparams={"learning_rate": rate}, **limits)
    start, trained = rows(untrained, k), rows(fitted.params, k)
    assert trained["cell"]["kernel"].dtype == dtype

    cell, out = torch.nn.LSTM(2, 4).to(getattr(torch, dtype)), torch.nn.Linear(4, 1)
    cell.load_state_dict(torch_weights(torch, start["cell"]["kernel"], start["cell"]["bias"], 2))
    out.weight.data = torch.tensor(start["out"]["kernel"].T.copy())
    out.bias.data = torch.tensor(start["out"]["bias"].copy())
    cell.bias_hh_l0.requires_grad_(False)  # we have one bias
    parameters = [p for p in [*cell.parameters(), *out.parameters()] if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=rate)
    x = torch.tensor(data.inputs[k].swapaxes(0, 1).copy())
    y = torch.tensor(data.targets[k])
    for _ in range(steps):
        optimizer.zero_grad()
        ((out(cell(x)[0][-1]) - y) ** 2).mean().backward()
        optimizer.step()

    expected = {
        "kernel": np.concatenate(
            [cell.weight_ih_l0.detach().numpy().T, cell.weight_hh_l0.detach().numpy().T]
        ),
        "bias": cell.bias_ih_l0.detach().numpy(),
    }
    for name, value in expected.items():
        moved = np.linalg.norm(value - start["cell"][name])
        assert moved > 0.1  # it has learned something
        assert np.linalg.norm(trained["cell"][name] - value) < tolerance * moved, name
    np.testing.assert_allclose(
        trained["out"]["kernel"], out.weight.detach().numpy().T, rtol=tolerance
    )
