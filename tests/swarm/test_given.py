"""Arguments are used as given, or refused: rates, seeds, keys, files."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from forecaster.swarm import (
    Checkpoint,
    Shared,
    Swarm,
    SwarmError,
    lstm,
    member_keys,
    use_all_cores,
)
from tests.messages import refuses
from tests.slow import slow

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3)).astype(np.float32)
Y = X.sum(-1, keepdims=True) + 1


def init(key):
    return {"w": 0.3 * jax.random.normal(key, (3, 1)), "b": jnp.zeros(1)}


def line(params, x):
    return x @ params["w"] + params["b"]


def swarm_of(members: Any = 1, **settings: Any) -> Swarm:
    loss = settings.pop("loss", optax.squared_error)
    return Swarm((init, line), members, loss=loss, **settings)


def stopping(progress) -> bool:
    return progress.epochs_done > 0


def of_a_tenth(learning_rate=0.1):
    return optax.sgd(learning_rate)


@pytest.mark.parametrize(
    "optimizer", [functools.partial(optax.sgd, learning_rate=0.1), slow(of_a_tenth)]
)
def test_a_learning_rate_of_the_optimisers_own_is_its_own(optimizer):
    made = swarm_of(optimizer=optimizer)
    expected = swarm_of(optimizer=optax.sgd, hyperparams={"learning_rate": 0.1})
    same = [each.fit(Shared(X), Shared(Y), epochs=3).losses.train for each in (made, expected)]
    np.testing.assert_allclose(*same, rtol=1e-6)
    given = swarm_of(optimizer=optimizer, hyperparams={"learning_rate": 0.01})
    assert given.fit(Shared(X), Shared(Y), epochs=3).losses.train[0, -1] > same[0][0, -1]


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {"batch_size": 20}),
        ({}, {"epochs": 61}),
        ({"optimizer": optax.adabelief}, {}),
        ({"loss": optax.huber_loss}, {}),
        ({"compute_dtype": "bfloat16"}, {}),
    ],
)
def test_a_checkpoint_of_another_training_is_not_continued(settings, options, tmp_path):
    path = tmp_path / "fit"
    swarm_of(optimizer=optax.adam).fit(
        Shared(X), Shared(Y), epochs=60, checkpoint=Checkpoint(path), on_progress=stopping
    )
    other = swarm_of(**{"optimizer": optax.adam} | settings)
    with refuses(SwarmError) as caught:
        resume = {"epochs": 60, "checkpoint": Checkpoint(path, resume=True)}
        other.fit(Shared(X), Shared(Y), **resume | options)
    (changed,) = settings | options
    assert f"{changed} (then " in str(caught.value)


@pytest.mark.parametrize("raw", [b"a,b\n1,2\n", None])
def test_a_checkpoint_replaces_no_other_file(raw, tmp_path):
    path = tmp_path / "mine"
    if raw is None:
        swarm_of().save(path)
    else:
        path.write_bytes(raw)
    before = path.read_bytes()
    with refuses(SwarmError):
        swarm_of().fit(Shared(X), Shared(Y), epochs=1, checkpoint=path)
    assert path.read_bytes() == before


def test_what_is_used_is_computed_as_what_is_measured():
    made = swarm_of(compute_dtype=jnp.bfloat16).fit(Shared(X), Shared(Y), epochs=5)
    predictions = made.predict(Shared(X))
    assert predictions.dtype == np.float32
    loss = np.mean((predictions[0] - Y) ** 2)
    np.testing.assert_allclose(made.evaluate(Shared(X), Shared(Y)), [loss], rtol=1e-6)
    # Outside a compiled program intermediate results are rounded too.
    np.testing.assert_allclose(np.asarray(made.member("0")(X)), predictions[0], atol=0.02)


@pytest.mark.parametrize("kind", [np.array, jnp.int32])
def test_seeds_in_arrays_are_numbers(kind):
    use_all_cores()
    made = swarm_of(seed=kind(3))
    jax.tree.map(np.testing.assert_array_equal, made.params, swarm_of(seed=3).params)


@pytest.mark.parametrize("kind", [bool, np.int32])
def test_a_mask_of_any_kind_leads_into_the_same_code(kind):
    use_all_cores()
    kernel, bias = RANDOM.normal(size=(7, 16)).astype("f4"), np.zeros(16, np.float32)
    inputs = RANDOM.normal(size=(5, 2, 3)).astype(np.float32)
    valid = np.array([[0, 1], [1, 1], [1, 1], [1, 0], [1, 1]])
    expected = lstm(kernel, bias, inputs, valid.astype(np.float32))
    np.testing.assert_array_equal(lstm(kernel, bias, inputs, valid.astype(kind)), expected)


def test_a_key_depends_on_seed_and_name_alone():
    keys = member_keys(3, ["a", "b", "c"])
    assert keys.shape == (3, 2) and keys.dtype == np.uint32
    np.testing.assert_array_equal(member_keys(3, ["c", "new", "a"])[[2, 0]], keys[[0, 2]])
    assert (member_keys(4, ["a", "b", "c"]) != keys).any(1).all()


def test_keys_are_the_same_on_every_machine_and_in_every_version():
    expected = [[4162277946, 3138552394], [1960861972, 3984813095]]
    np.testing.assert_array_equal(member_keys(7, ["AAPL", "MSFT"]), expected)
