"""bfloat16 products: compiled code against JAX and float32, and the fallbacks without it.

Without matrix units (AMX), AVX-512 emulates them to the bit; ``scripts/kernels/sanitize.py``
compares both, and AVX-512 BF16 with them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster import swarm
from forecaster.swarm.native import library
from forecaster.swarm.recurrence import products_of
from tests.swarm.problems import CELLS, outputs, problem

# Rounding to bfloat16 has a relative error of up to 2^-9. Values and gradients are sums of products
# of two rounded numbers over several steps: their relative error is a few times that.
ROUNDING = 2.0**-9


def apart(a, b):
    """Return the distance, relative to the norm."""
    return float(jnp.linalg.norm((a - b).ravel()) / jnp.linalg.norm(b.ravel()))


def by_jax(oracle, precision, *, last_only=False):
    recurrence = functools.partial(oracle, precision=precision)
    return (lambda *arrays: recurrence(*arrays)[-1]) if last_only else recurrence


@pytest.mark.parametrize("cell", CELLS, ids=["lstm", "gru"])
# Fixed examples: a gradient that is a small difference of large numbers may exceed the bound.
@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**31), st.integers(1, 2), st.integers(1, 7),
    st.sampled_from([1, 2, 15, 17, 32, 33, 50]), st.sampled_from([1, 3, 7, 8, 17, 33, 40]),
    st.sampled_from([1, 5, 16, 17, 32, 33, 50, 64]), st.booleans(),
)  # fmt: skip
def test_values_and_gradients_are_jax_s_but_for_the_rounding(
    units, cell, seed, members, steps, batch, features, hidden, last_only
):
    arrays = problem(seed, members, steps, batch, features, hidden, cell[0])
    arrays = (*arrays[:-2], arrays[-2].at[0, 0].set(1), arrays[-1])  # at least one step is observed
    ours = functools.partial(cell[0], last_only=last_only, precision="bfloat16")
    got = outputs(ours, arrays)
    rounded = outputs(by_jax(cell[1], "bfloat16", last_only=last_only), arrays)
    full = outputs(by_jax(cell[1], "float32", last_only=last_only), arrays)
    for a, b, c in zip(got, rounded, full, strict=True):
        assert apart(a, b) < 3 * ROUNDING  # they round in different places
        assert apart(a, c) < 6 * ROUNDING


@pytest.mark.parametrize(("cell", "oracle"), CELLS, ids=["lstm", "gru"])
@pytest.mark.parametrize("precision", ["amx", "jax"])
def test_a_few_inputs_are_not_rounded(units, cell, oracle, precision):
    kernel, *rest = problem(5, 2, 4, 20, 7, 24, cell)
    arrays = (kernel.at[:, 7:].set(0), *rest)  # only inputs and biases
    ours = cell if precision == "amx" else oracle
    got = outputs(functools.partial(ours, precision="bfloat16"), arrays)[0]
    full = outputs(by_jax(oracle, "float32"), arrays)[0]
    assert float(jnp.abs(got - full).max()) < 2.5e-4  # error of the activations in each step
    wide = problem(5, 2, 4, 20, 8, 24, cell)
    wide = (wide[0].at[:, 8:].set(0), *wide[1:])
    got = outputs(functools.partial(ours, precision="bfloat16"), wide)[0]
    full = outputs(by_jax(oracle, "float32"), wide)[0]
    assert float(jnp.abs(got - full).max()) > 5e-4  # error with 8 inputs


@pytest.mark.parametrize(("cell", "oracle"), CELLS, ids=["lstm", "gru"])
def test_without_matrix_units_it_is_float32(cell, oracle, monkeypatch):
    arrays = tuple(a[0] for a in problem(3, 1, 4, 6, 3, 20, cell)[:-1])
    monkeypatch.setattr(library, "bfloat16_status", lambda: (None, "there are none"))
    if library.kernel_status()[0] is not None:
        np.testing.assert_array_equal(cell(*arrays, precision="bfloat16"), cell(*arrays))
    monkeypatch.setattr(library, "kernel_status", lambda: (None, "turned off"))
    got = cell(*arrays, precision="bfloat16")  # JAX alone rounds, as on GPUs
    np.testing.assert_array_equal(got, oracle(*arrays, precision="bfloat16"))
    assert 0 < apart(got, cell(*arrays)) < 4 * ROUNDING
    text = jax.jit(functools.partial(cell, precision="bfloat16")).lower(*arrays).as_text()
    assert "bf16" in text and "-> tensor<6x" in text


@pytest.mark.parametrize(
    ("lacking", "of_amd", "runs", "why_not"),
    [
        ([], True, "amx", ""),
        (["amx"], True, "avx512-bf16", ""),
        (["amx"], False, None, "no amx, and AVX-512 BF16 is no faster than float32 on this one"),
        (["amx", "avx512-bf16"], True, None, "no amx, no avx512-bf16"),
    ],
)
def test_what_is_fastest_is_used_unless_something_else_is_asked_for(
    lacking, of_amd, runs, why_not, monkeypatch
):
    monkeypatch.delenv("FORECASTER_KERNEL", raising=False)
    reasons = {name: f"no {name}" for name in lacking}
    monkeypatch.setattr(library, "why_no_bfloat16", lambda by: reasons.get(by, ""))
    monkeypatch.setattr(library, "_prefers_avx512_bf16", lambda: of_amd)
    of = functools.partial(library.bfloat16_with, ("avx512", ""))
    assert of() == (runs, why_not)
    monkeypatch.setenv("FORECASTER_KERNEL", "avx512-bf16")  # even if it is no faster
    asked = reasons.get("avx512-bf16", "")
    assert of() == ((None, asked) if asked else ("avx512-bf16", ""))


def test_layers_take_a_precision(units):
    layer = swarm.GRU(3, 8, precision="bfloat16", rngs=nnx.Rngs(0))
    inputs, valid = jnp.ones((4, 5, 3)), jnp.ones((4, 5))
    full = swarm.GRU(3, 8, rngs=nnx.Rngs(0))(inputs, valid)
    assert 0 < apart(layer(inputs, valid), full) < 4 * ROUNDING
    assert products_of("bfloat16") == f"bfloat16 ({units})"
    with pytest.raises(ValueError, match="precision: expected float32 or bfloat16; got 'half'"):
        swarm.LSTM(3, 8, precision="half", rngs=nnx.Rngs(0))


def test_what_the_products_are_is_said(monkeypatch):
    monkeypatch.setattr(library, "bfloat16_status", lambda: (None, "there are none"))
    monkeypatch.setattr(library, "kernel_status", lambda: ("avx2", ""))
    assert products_of("float32") == "float32"
    assert products_of("bfloat16") == "float32 in place of bfloat16 (there are none)"
    monkeypatch.setattr(library, "kernel_status", lambda: (None, "turned off"))
    assert products_of("bfloat16") == "bfloat16 (JAX alone)"
