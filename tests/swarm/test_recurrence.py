"""The hand-written backward passes against automatic differentiation, and against PyTorch."""

import contextlib
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.swarm.recurrence import gru, lstm
from tests.swarm.problems import problem

sizes = st.sampled_from([1, 3, 5])


@contextlib.contextmanager
def as_on_gpus(unroll):
    """Unroll scans as on GPUs, with the inputs' part computed at once."""
    with pytest.MonkeyPatch.context() as patch:
        for cell in ("lstm", "gru"):
            module = importlib.import_module(f"forecaster.swarm.recurrence.{cell}")
            patch.setattr(module, "steps_per_iteration", lambda steps: min(steps, unroll))
        yield


def plain_lstm(kernel, bias, inputs, valid):
    """Run the textbook LSTM step by step."""
    size = kernel.shape[1] // 4
    h = c = jnp.zeros((inputs.shape[1], size), inputs.dtype)
    out = []
    for x, keep in zip(inputs, valid[..., None], strict=True):
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ kernel + bias, 4, -1)
        new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
        h, c = jnp.where(keep > 0, new_h, h), jnp.where(keep > 0, new_c, c)
        out.append(h)
    return jnp.stack(out)


def plain_gru(kernel, bias, new_bias, inputs, valid):
    """Run the textbook GRU step by step, with the reset after the product."""
    features, size = inputs.shape[-1], kernel.shape[1] // 3
    h = jnp.zeros((inputs.shape[1], size), inputs.dtype)
    out = []
    for x, keep in zip(inputs, valid[..., None], strict=True):
        xr, xz, xn = jnp.split(x @ kernel[:features] + bias, 3, -1)
        hr, hz, hn = jnp.split(h @ kernel[features:], 3, -1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        n = jnp.tanh(xn + r * (hn + new_bias))
        h = jnp.where(keep > 0, (1 - z) * n + z * h, h)
        out.append(h)
    return jnp.stack(out)


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "textbook"), [(lstm, plain_lstm), (gru, plain_gru)])
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**31), sizes, sizes, sizes, sizes, st.sampled_from([1, 2, 9]))
def test_values_and_gradients_are_those_of_the_textbook(
    ours, textbook, seed, steps, batch, features, hidden, unroll
):
    with jax.enable_x64(True), as_on_gpus(unroll):
        made = problem(seed, 1, steps, batch, features, hidden, ours)
        *given, valid, weights = (jnp.asarray(array[0], float) for array in made)

        def results(recurrence):
            def loss(*arrays):
                return (weights * recurrence(*arrays, valid)).sum()

            return jax.value_and_grad(loss, tuple(range(len(given))))(*given)

        pairs = zip(*map(jax.tree.leaves, (results(ours), results(textbook))), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("cell", [lstm, gru])
def test_a_cell_is_torchs(cell):
    torch = pytest.importorskip("torch")
    kernel, *biases, inputs, _, _ = (array[0] for array in problem(0, 1, 7, 3, 2, 5, cell))
    weights = torch_weights(torch, kernel, biases[0], 2)
    if cell is gru:
        weights["bias_hh_l0"][10:] = torch.tensor(np.asarray(biases[1]))
    reference = (torch.nn.LSTM if cell is lstm else torch.nn.GRU)(2, 5)
    reference.load_state_dict(weights)
    expected = reference(torch.tensor(np.asarray(inputs)))[0].detach().numpy()
    ours = cell(kernel, *biases, inputs, jnp.ones((7, 3)))
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def torch_weights(torch, kernel, bias, features):
    """Set a torch recurrence's weights from our kernel; its second bias is zero."""
    kernel, bias = (torch.tensor(np.asarray(array)) for array in (kernel, bias))
    return {
        "weight_ih_l0": kernel[:features].T,
        "weight_hh_l0": kernel[features:].T,
        "bias_ih_l0": bias,
        "bias_hh_l0": torch.zeros_like(bias),
    }
