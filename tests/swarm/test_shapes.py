"""Arrays that a model or a loss does not take raise a SwarmError in every method."""

import numpy as np
import optax
import pytest

from forecaster.swarm import GRU, Single, Streamed, Swarm, SwarmError
from tests.swarm.test_swarm import X, Y, make

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
    "bind": lambda swarm: swarm.bind()(WIDE),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("door", REFUSED)
def test_another_number_of_features_is_refused_with_the_shapes(stepped, door):
    message = (
        r"^the model or the loss did not take the arrays of one member, inputs \(\d+, 5\)\. "
        r"Expected model\(inputs\).*\(refused with TypeError: dot_general .*\)"
    )
    with pytest.raises(SwarmError, match=message) as caught:
        REFUSED[door](stepped)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.usefixtures("unchecked")
def test_so_are_targets_and_own_layers(stepped):
    with pytest.raises(SwarmError, match=r"predictions \(32, 1\), targets \(32, 2\)"):
        stepped.evaluate(X, np.repeat(Y, 2, -1))
    one = Single(lambda rngs: GRU(3, 2, rngs=rngs), loss=optax.squared_error)
    with pytest.raises(SwarmError, match=r"expected inputs \(T, B, F\).*got \(4, 32, 5\)"):
        one.predict(WIDE[:4])


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
