"""Spans and windows: no target outside its span, and every step inside it."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.forecasting.network_task import validation_of
from forecaster.forecasting.windows import Sequence, Split, Windowed


def test_short_series_hold_back_what_they_can_spare():
    config = fc.Config(horizon=2)
    assert validation_of(config, np.array([60, 30, 160, 5_000])).tolist() == [15, 11, 40, 252]


splits = st.builds(
    Split,
    steps=st.integers(60, 120),
    lookback=st.integers(8, 20),
    burn_in=st.integers(0, 7),
    horizon=st.integers(1, 4),
    validation=st.integers(15, 30),
    shortest_validation=st.integers(5, 15),
)


def span(split: Split, first: int, held_back: int) -> tuple[jax.Array, jax.Array]:
    """Return the span of a member that holds back the most rows of a split, or fewer."""
    held_back = max(split.shortest_validation, min(held_back, split.validation))
    return jnp.int32(first), jnp.int32(split.steps - held_back - 1)


@settings(max_examples=5, deadline=None)
@given(splits, st.integers(0, 40), st.integers(0, 40), st.integers(0, 99), st.integers(1, 9))
def test_training_windows_never_predict_beyond_the_boundary(
    split, first, held_back, seed, batch_size
):
    mode, (begin, boundary) = Sequence(split), span(split, first, held_back)
    (starts, used), active = mode.batches(jax.random.key(seed), begin, boundary, batch_size)
    origins = np.asarray(mode.origins(starts))
    assert origins.max() < boundary  # so that at least one target is known
    assert starts.min() >= min(first, boundary - split.lookback)
    assert active[0] and starts.shape[1] == batch_size and np.asarray(used).all()


@settings(max_examples=5, deadline=None)
@given(splits, st.sampled_from([Sequence, Windowed]))
def test_validation_windows_cover_all_validation_origins_once(split, kind):
    mode = kind(split)
    origins = mode.origins(mode.validation_starts()).ravel()
    boundary = split.steps - split.validation - 1
    inside = origins[origins >= boundary]
    assert sorted(inside) == split.validation_origins.tolist()
    assert split.validation_origins[0] == boundary  # whose first target is the first held back


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.integers(0, 50), st.integers(1, 60))
def test_draws_do_not_depend_on_how_long_others_are(seed, first, longer):
    """In a panel with a longer history, all steps shift and nothing else changes."""
    small = Split(150, lookback=10, burn_in=3, horizon=2, validation=20, shortest_validation=20)
    large = Split(150 + longer, 10, 3, 2, 20, 20)
    key = jax.random.key(seed)
    few, active = Sequence(small).batches(key, *span(small, first, 20), 4)
    many, active_many = Sequence(large).batches(key, *span(large, first + longer, 20), 4)
    count = int(active.sum())
    assert int(active_many.sum()) == count
    np.testing.assert_array_equal(few.starts[:count], many.starts[:count] - longer)
