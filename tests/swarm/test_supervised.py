"""A task from a model and a loss: batches, losses, validation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from forecaster.swarm import (
    Batch,
    Supervised,
    Swarm,
    supervised,
    use_all_cores,
)
from forecaster.swarm.training.supervised import bootstrap_sample

LINEAR = (lambda key: jnp.float32(2), lambda params, inputs: params * inputs)


@pytest.fixture
def key():
    use_all_cores()  # before anything starts JAX
    return jax.random.key(0)


def batch():
    x, y, weight = data()[:3]
    return Batch(x, y, jnp.asarray(weight))


def data(examples=5, padded=2, **options):
    x = jnp.arange(examples + padded, dtype=jnp.float32).at[examples:].set(jnp.nan)
    weight = jnp.ones(examples + padded).at[examples:].set(0)
    return Supervised(x, x, weight, **options)


@pytest.mark.parametrize("batch_size", [None, 12])
def test_a_loss_that_forgets_the_weights_sees_no_padding(key, batch_size):
    def mean(params, batch, key):  # wrong, strictly, where examples are not repeated alike
        return ((params * batch.inputs - batch.targets) ** 2).mean()

    task = supervised(LINEAR, loss_fn=mean, batch_size=batch_size)
    padded = data(4, 8)  # NaN in the padding
    index, _ = task.batches(padded, key)
    index = index if index is None else jax.tree.map(lambda leaf: leaf[0], index)
    loss = task.loss(jnp.float32(2), task.take(padded, index), key, {})
    np.testing.assert_allclose(loss, np.mean(np.arange(4) ** 2))
    held_back = padded._replace(validation_inputs=padded.inputs, validation_weight=padded.weight,
                                validation_targets=padded.targets)  # fmt: skip
    assert task.validate is not None
    np.testing.assert_allclose(task.validate(jnp.float32(2), held_back, {}), loss)


def test_a_bootstrap_sample_draws_valid_examples_only(key):
    valid = jnp.array([False, True, True, False, True])
    sample = jax.vmap(lambda key: bootstrap_sample(key, valid))(jax.random.split(key, 50))
    assert set(np.unique(sample)) == {1, 2, 4}


def test_an_elementwise_loss_is_averaged_over_valid_examples(key):
    task = supervised(LINEAR, optax.squared_error)
    index, active = task.batches(data(), key)
    assert index is None and active.tolist() == [True]  # one batch of all examples, in any order
    assert task.take(data(), index).inputs.shape == (7,)
    loss, gradient = jax.value_and_grad(task.loss)(jnp.float32(2), batch(), key, {})
    np.testing.assert_allclose(loss, np.mean(np.arange(5) ** 2))  # (2x - x)^2
    np.testing.assert_allclose(gradient, np.mean(2 * np.arange(5) ** 2))  # no NaN of the padding


@pytest.mark.parametrize(("batch_size", "rows"), [(32, 3), (3, 3), (2, 2), (None, 3)])
def test_a_batch_is_no_larger_than_the_examples_that_there_are(batch_size, rows):
    """Filled up to 32, one series per member took five times as long."""
    seen = set()

    def apply(params, inputs):
        seen.add(inputs.shape[0])
        return inputs * params

    x = np.ones((2, 3), np.float32)
    made = Swarm((lambda key: jnp.float32(1), apply), 2, loss=optax.squared_error)
    made.fit(x, 2 * x, epochs=1, batch_size=batch_size)
    assert seen == {rows}
