"""Members as pure functions, and back into a swarm."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from forecaster.swarm import Batch, Swarm, SwarmError
from tests.messages import refuses
from tests.swarm.test_programs import traces
from tests.swarm.test_swarm import Network, X, Y, close, make, same

__all__ = ["traces"]  # the fixture


def test_pure_functions_train_as_the_swarm_does_and_come_back_with_their_state(tmp_path):
    made, batches = make(), np.stack([X[:, :16], X[:, 16:]])
    targets = np.stack([Y[:, :16], Y[:, 16:]])
    update = jax.vmap(made.pure.update)

    def learn(state, batch):
        inputs, targets = batch
        return update(state, Batch(inputs, targets, jnp.ones(targets.shape[:2])), made.hyperparams)

    state, losses = jax.jit(lambda *args: jax.lax.scan(learn, *args))(
        made.state, (batches, targets)
    )
    stepped, expected = made, []
    for inputs, wanted in zip(batches, targets, strict=True):
        stepped, loss = stepped.step(inputs, wanted)
        expected.append(loss)
    close(np.asarray(losses), np.stack(expected))
    back = made.with_state(state)
    assert list(back.epochs) == [2] * len(X) and back.losses.train.shape == (len(X), 2)
    close(back.params, stepped.params)
    close(back.step(X, Y)[0].params, stepped.step(X, Y)[0].params)  # the optimiser's state too
    back.save(tmp_path / "a.swarm")
    assert same(Swarm.load(tmp_path / "a.swarm", Network, loss=optax.squared_error).state, state)
    begun = jax.vmap(made.pure.initialise)(jnp.asarray(made.state.key), made.hyperparams)
    close(begun.params, made.params)
    one = jax.tree.map(lambda leaf: leaf[3], (state.params, made.hyperparams))
    close(made.pure.apply(one[0], X[3], one[1]), back.predict(X)[3])


def test_a_bound_function_predicts_as_the_swarm_does(traces):
    made = make()
    bound = made.bind()
    predictions = bound(X)
    close(np.asarray(predictions), made.predict(X))
    stepped = made.step(X, Y)[0]
    traces.clear()
    bound(X)
    made.bind()(X)  # the same functions
    close(np.asarray(stepped.bind()(X)), stepped.predict(X))
    assert not traces
    close(np.asarray(jax.jit(lambda x: 2 * bound(x))(X)), 2 * np.asarray(predictions))


@pytest.mark.usefixtures("unchecked")
def test_a_state_of_others_is_refused():
    made = make()
    with refuses(SwarmError):
        made.with_state(make(["a"]).state)
    with refuses(SwarmError):
        made.with_state(make(optimizer=optax.sgd).state)
    wide = made.state._replace(params=jax.tree.map(np.float64, made.params))
    with refuses(SwarmError):
        made.with_state(wide)


@pytest.mark.usefixtures("unchecked")
def test_weights_and_losses_that_cannot_be_trained_are_named():
    def init(key):
        return {"w": jnp.ones((X.shape[-1], 1)), "count": jnp.int32(0)}

    def apply(params, x):
        return x @ params["w"]

    whole = Swarm((init, apply), len(X), loss=optax.squared_error)
    for train in (whole.step, lambda x, y: whole.fit(x, y, epochs=1)):
        with refuses(SwarmError):
            train(X, Y)
    constant = Swarm((lambda key: {"w": jnp.ones(1)}, apply), len(X), loss_fn=lambda p, b, k: 1)
    with refuses(SwarmError):
        constant.step(X, Y)


def test_another_number_of_examples_is_named():
    made = make()
    state, rates = jax.tree.map(lambda leaf: leaf[0], (made.state, made.hyperparams))
    for count in (4, 1):  # one would be spread over all inputs
        batch = Batch(X[0, :8], Y[0, :count], np.ones(8))
        with refuses(SwarmError):
            made.pure.update(state, batch, rates)
