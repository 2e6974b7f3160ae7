"""Groups whose rounds a program goes through by itself, and states as flat arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster import swarm
from forecaster.swarm import schedule
from forecaster.swarm.flat import Form
from forecaster.swarm.lanes import Layout, packed_rounds, unpack_rounds


class Small(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))


def fitted(members, data, *, validated, epochs=40):
    x, y = (part[members] for part in data)
    ids = [f"m{member}" for member in members]
    made = swarm.Swarm(Small, ids, loss=optax.squared_error, hyperparams={"learning_rate": 0.05})
    options = {"validation_data": (x[:, :9], y[:, :9]), "patience": 3} if validated else {}
    return made.fit(x, y, epochs=epochs, batch_size=None, **options)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 32, 4)).astype(np.float32)
    noise = random.normal(size=(300, 32, 1)) * np.linspace(0, 9, 300)[:, None, None]
    return x, (np.tanh(x.sum(2, keepdims=True)) + noise).astype(np.float32)


@pytest.mark.usefixtures("as_for_users")
@pytest.mark.parametrize("validated", [False, True])
def test_rounds_change_no_bit(data, validated, monkeypatch):
    """300 members are three groups of at most 8 rounds; some stop early."""
    used = []
    place = schedule.Schedule._trained

    def trained(self, group, epochs):
        used.append((self.layout.rounds, len(group.rows)))
        return place(self, group, epochs)

    monkeypatch.setattr(schedule.Schedule, "_trained", trained)
    everybody = np.arange(300)
    whole = fitted(everybody, data, validated=validated)
    assert {rounds for rounds, _ in used} == {8} and max(rows for _, rows in used) > 100
    some = np.array([299, 7, 120])
    few = fitted(some, data, validated=validated)
    monkeypatch.setattr(schedule, "_ROUNDS", 1)
    used.clear()
    one_by_one = fitted(everybody, data, validated=validated)
    assert {rounds for rounds, _ in used} == {1}
    for a, b, c in zip(*(jax.tree.leaves(f.params) for f in (whole, one_by_one, few)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.asarray(a)[some], c)
    np.testing.assert_array_equal(whole.losses.validation, one_by_one.losses.validation)
    if validated:
        assert len(set(np.isfinite(whole.losses.validation).sum(1))) > 3  # that stop apart


def test_what_does_not_fit_goes_by_fewer_at_once(data, monkeypatch):
    monkeypatch.setattr(schedule, "_SMALL", 1000)
    used = []
    init = schedule.Schedule.__init__

    def begun(self, *args, **options):
        init(self, *args, **options)
        used.append(self.layout)

    monkeypatch.setattr(schedule.Schedule, "__init__", begun)
    fitted(np.arange(3), data, validated=False, epochs=1)
    assert [layout.rounds for layout in used] == [1]


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4))
def test_rounds_lose_nobody(members, lanes, chunk, rounds):
    layout = Layout.of(members, lanes, chunk).in_rounds(rounds)
    assert members <= layout.capacity <= members + lanes * chunk
    values = np.random.default_rng(members).normal(size=(members, 2)).astype(np.float32)
    turns = layout.turns(np.arange(members))
    packed = [packed_rounds(lambda rows: values[rows], turn, layout) for turn in turns]
    assert {group.shape for group in packed} == {(lanes, rounds, chunk, 2)}
    lengths = [len(turn) for turn in turns]
    np.testing.assert_array_equal(unpack_rounds(packed, lengths), values)
    for turn, group in zip(turns, packed, strict=True):
        places = layout.by_round(np.ones(len(turn), bool))
        assert places.shape == (lanes, rounds)
        assert places.sum() == -(-len(turn) // chunk)  # lanes and rounds that have somebody
        first = np.array([values[turn[0]]])
        assert (group[~places.astype(bool)] == first).all()  # free places repeat the first


def test_a_tree_is_one_array_for_each_type():
    tree = {
        "a": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        "b": (np.array([5, 6], np.int32), np.array([[1.5], [2.5]], np.float32)),
        "c": np.array([[True, False], [False, True]]),
    }
    form = Form.of(jax.tree.map(lambda leaf: leaf[0], tree))
    flat = form.flat_rows(tree)
    assert {name: array.shape for name, array in flat.items()} == {
        "float32": (2, 7), "int32": (2, 1), "bool": (2, 2)
    }  # fmt: skip
    assert form.bytes == 7 * 4 + 4 + 2
    assert form.places["b"][1] == ("float32", 6, 7)
    back = form.tree_of_rows(flat)
    jax.tree.map(np.testing.assert_array_equal, back, tree)
    one = jax.jit(lambda tree: form.tree(form.flat(tree)))(jax.tree.map(lambda leaf: leaf[1], tree))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[1]), one, tree)
