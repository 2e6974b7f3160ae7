"""The compiled recurrence for CPUs: loads it, and says why it does not run where it does not.

``FORECASTER_KERNEL=off`` turns it off; ``plain``, ``avx2`` or ``avx512`` asks for an instruction
set, the best one that the machine has being the default.
"""

import ctypes
import functools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

_LIBRARY = Path(__file__).parent / "_recurrence.so"
_TARGETS = ("forecaster_lstm_forward", "forecaster_lstm_infer", "forecaster_lstm_backward")


@functools.cache
def loaded() -> tuple[str | None, str]:
    """The kernel's instruction set and "", or None and the reason why it does not run."""
    if os.environ.get("FORECASTER_KERNEL") == "off":
        return None, "turned off by FORECASTER_KERNEL"
    if jax.default_backend() != "cpu":
        return None, f"it is for CPUs; JAX runs on {jax.default_backend()}"
    if not _LIBRARY.exists():
        return None, "it was not built: there was no C++ compiler when forecaster was installed"
    try:
        library = ctypes.cdll.LoadLibrary(str(_LIBRARY))
        for name in _TARGETS:
            capsule = jax.ffi.pycapsule(getattr(library, name))
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        library.forecaster_instructions.restype = ctypes.c_char_p
        return library.forecaster_instructions().decode(), ""
    except Exception as error:  # built for another machine or jaxlib: JAX alone does it too
        return None, f"it cannot be loaded: {str(error).splitlines()[0]}"


def usable(*arrays: Array) -> bool:
    """Whether the kernel can be called on these."""
    return all(array.dtype == jnp.float32 for array in arrays) and loaded()[0] is not None


def infer(kernel: Array, bias: Array, inputs: Array, valid: Array) -> Array:
    """Hidden states (T, B, H); arguments as of :func:`forecaster.swarm.recurrence.lstm`."""
    hidden = _array(*inputs.shape[:2], bias.shape[-1] // 4)
    return _call("infer", hidden)(kernel, bias, inputs, valid)


def forward(kernel: Array, bias: Array, inputs: Array, valid: Array) -> tuple[Array, Array, Array]:
    """Hidden states (T, B, H), and what the backward pass needs, in an order of its own."""
    steps, batch, size = *inputs.shape[:2], bias.shape[-1] // 4
    padded = -(-size // 16) * 16
    out = (
        _array(steps, batch, size),
        _array(steps, batch, padded),
        _array(steps, batch, 4 * padded),
    )
    return _call("forward", out)(kernel, bias, inputs, valid)


def backward(residuals: tuple[Array, ...], grad_hidden: Array, want_inputs: bool):
    """Gradients of kernel, bias and inputs; those of the inputs are worthless unless wanted."""
    kernel, inputs = residuals[:2]
    out = (_array(*kernel.shape), _array(kernel.shape[-1]), _array(*inputs.shape))
    call = _call("backward", out)
    return call(*residuals, grad_hidden, last_only=False, want_x=want_inputs)


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _call(name: str, out):
    return jax.ffi.ffi_call(f"forecaster_lstm_{name}", out, vmap_method="broadcast_all")
