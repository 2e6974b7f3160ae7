"""Members as pure functions, and back into a swarm."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from forecaster.swarm import Batch, Swarm
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
