"""Examples of another shape than in training raise a SwarmError in every method."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

from forecaster.swarm import GRU, Shared, Single, Streamed, Swarm, SwarmError, linen_functions
from tests.swarm.test_swarm import Network, X, Y, make

WIDE = np.zeros((*X.shape[:2], 5), np.float32)


@pytest.fixture(scope="module")
def stepped() -> Swarm:
    return make().step(X, Y)[0]


REFUSED = {
    "predict": lambda swarm: swarm.predict(WIDE),
    "predict with a key": lambda swarm: swarm.predict(WIDE, key=0),
    "evaluate": lambda swarm: swarm.evaluate(WIDE, Y),
    "step": lambda swarm: swarm.step(WIDE, Y),
    "fit": lambda swarm: swarm.fit(WIDE, Y, epochs=1),
    "fit of a stream": lambda swarm: swarm.fit(
        Streamed(lambda rows: (WIDE[rows], Y[rows])), epochs=1
    ),
    "cost": lambda swarm: swarm.cost(WIDE, Y),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("door", REFUSED)
def test_another_number_of_features_is_refused_by_name(stepped, door):
    message = (
        rf"^{door.split()[0]}: inputs: expected single examples of shape \(3,\), as in training; "
        r"got \(5,\)\. Give arrays \(member, example, 3\), or Shared ones \(example, 3\) "
        r"\(refused with TypeError: dot_general .*\)$"
    )
    with pytest.raises(SwarmError, match=message) as caught:
        REFUSED[door](stepped)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.usefixtures("unchecked")
def test_so_are_targets_trees_and_types(stepped):
    with pytest.raises(SwarmError, match=r"targets: expected single examples of shape \(1,\).*2"):
        stepped.evaluate(X, np.repeat(Y, 2, -1))

    def apply(params, inputs):
        return params["table"][inputs["word"]]

    words = Swarm((lambda key: {"table": jnp.zeros((4, 1))}, apply), 2, loss=optax.squared_error)
    words, _ = words.step(Shared({"word": np.arange(4)}), Shared(np.zeros((4, 1), np.float32)))
    with pytest.raises(SwarmError, match=r"\['word'\]: expected int64, as in training; got float"):
        words.predict(Shared({"word": np.arange(4.0)}))
    with pytest.raises(SwarmError, match=r"expected inputs\['word'\], as in .*got inputs\['name'"):
        words.predict(Shared({"name": np.arange(4)}))


@pytest.mark.usefixtures("unchecked")
def test_members_know_shapes_wherever_they_go(stepped, tmp_path):
    stepped.save(tmp_path / "a.swarm")
    loaded = Swarm.load(tmp_path / "a.swarm", Network, loss=optax.squared_error)
    for swarm in (loaded, stepped.select(["m1"]), stepped.merge(), stepped.with_hyperparams()):
        # These values have no member axis, so the error must not mention members.
        message = r"expected single examples of shape \(3,\).* Give values \(example, 3\) \(refused"
        with pytest.raises(SwarmError, match=message):
            swarm.predict(Shared(WIDE[0]))
    one = Single(Network, loss=optax.squared_error).step(X[0], Y[0])[0]
    with pytest.raises(SwarmError, match=r"expected single examples of shape \(3,\)"):
        one.predict(WIDE[0])
    functions = linen_functions(linen.Dense(1), X[0])
    with pytest.raises(SwarmError, match=r"expected single examples of shape \(3,\)"):
        Swarm(functions, 2, loss=optax.squared_error).predict(Shared(WIDE[0]))


@pytest.mark.usefixtures("unchecked")
def test_where_no_shape_is_known_the_error_names_the_arrays():
    match = (
        r"^predict: the model or the loss did not take the arrays of one member, inputs "
        r"\(32, 5\)\. Expected model\(inputs\).*\(refused with TypeError: dot_general .*\)$"
    )
    with pytest.raises(SwarmError, match=match) as caught:
        make().predict(WIDE)
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(SwarmError, match=r"^fit: .*predictions \(32, 1\), targets \(32, 2\)"):
        make().fit(X, np.repeat(Y, 2, -1))


@pytest.mark.usefixtures("unchecked")
def test_an_error_of_one_s_own_is_shown_as_it_is(stepped):
    """Errors of a callback, and of a model on known shapes, pass unchanged."""

    def fail(progress):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        stepped.fit(X[:, :, None].repeat(2, 2), Y[:, :, None].repeat(2, 2), on_progress=fail)
    broken = make(loss=None, loss_fn=lambda params, batch, key: params["none"])
    with pytest.raises(KeyError, match="none"):
        broken.step(X, Y)


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_shape_is_not_taken_for_a_missing_key():
    def loss_fn(params, batch, key):
        return ((batch.inputs @ params["slope"] - batch.targets) ** 2).mean()

    pair = (lambda key: {"slope": jnp.zeros((3, 1))}, lambda params, x: x @ params["slope"])
    swarm = Swarm(pair, len(X), loss_fn=loss_fn).step(X, Y)[0]
    with pytest.raises(SwarmError, match=r"^evaluate: inputs: expected single examples of shape"):
        swarm.evaluate(WIDE, Y)


@pytest.mark.usefixtures("unchecked")
def test_layers_of_the_engine_s_own_are_no_exception():
    def recurrent(rngs):
        return GRU(3, 2, rngs=rngs)

    one = Single(recurrent, loss=optax.squared_error)
    one, _ = one.step(X[:4], np.zeros((4, len(X[0]), 2), np.float32))
    match = r"^predict: inputs: expected single examples of shape \(32, 3\), as in training; got"
    with pytest.raises(SwarmError, match=match):
        one.predict(WIDE[:4])


@pytest.mark.usefixtures("unchecked")
def test_a_model_that_takes_other_shapes_gets_them(stepped):
    """For example, a model of sequences takes longer ones."""
    assert stepped.predict(X[:, :, None].repeat(7, 2)).shape == (*X.shape[:2], 7, 1)


@pytest.mark.usefixtures("unchecked")
def test_numbers_that_are_not_finite_are_let_through_where_that_is_said(stepped):
    broken = X.copy()
    broken[4, 2, 1] = np.nan
    for door in (lambda **given: stepped.predict(broken, **given),
                 lambda **given: stepped.evaluate(broken, Y, **given),
                 lambda **given: stepped.step(broken, Y, **given)[1]):  # fmt: skip
        with pytest.raises(SwarmError, match=r"member m4, example 2.*check=False"):
            door()
        finite = np.isfinite(door(check=False)).reshape(len(X), -1).all(1)
        assert list(np.flatnonzero(~finite)) == [4]
