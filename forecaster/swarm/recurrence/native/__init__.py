"""The compiled recurrence for CPUs: loads it, and says why where it does not run.

``FORECASTER_KERNEL=off`` turns it off; ``plain``, ``avx2`` or ``avx512`` allows no more than that
instruction set. By default the best one that the machine has is used.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from forecaster.swarm.recurrence.native.compiling import NOT_BUILT

_LIBRARY = Path(__file__).parent / "_recurrence.so"
_SETS = ("plain", "avx2", "avx512")
_TARGETS = tuple(
    f"forecaster_{cell}_{what}"
    for cell in ("lstm", "gru")
    for what in ("infer", "forward", "backward")
)


@functools.cache
def kernel_status() -> tuple[str | None, str]:
    """The kernel's instruction set and "", or None and the reason why it does not run."""
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked == "off":
        return None, "turned off by FORECASTER_KERNEL"
    if asked not in ("", *_SETS):
        return None, f"FORECASTER_KERNEL is {asked!r}; expected off, {', '.join(_SETS)}, or nothing"
    if jax.default_backend() != "cpu":
        return None, f"it is for CPUs; JAX runs on {jax.default_backend()}"
    if not _LIBRARY.exists():
        return None, f"it was not built: {_why_not_built()}"
    try:
        library = ctypes.cdll.LoadLibrary(str(_LIBRARY))
        for name in _TARGETS:
            capsule = jax.ffi.pycapsule(getattr(library, name))
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        library.forecaster_instructions.restype = ctypes.c_char_p
        return library.forecaster_instructions().decode(), ""
    except Exception as error:  # built for another machine or jaxlib: JAX alone does it too
        return None, f"it cannot be loaded: {str(error).splitlines()[0]}"


def _why_not_built() -> str:
    """The reason that the build of the package wrote down."""
    try:
        return (_LIBRARY.parent / NOT_BUILT).read_text().strip()
    except OSError:
        return "there was no C++ compiler when forecaster was installed"


def usable(*arrays: Array) -> bool:
    """Whether the kernel can be called on these arrays: float32, on a CPU, and it was loaded."""
    return all(array.dtype == jnp.float32 for array in arrays) and kernel_status()[0] is not None


def check_shapes(kernel: Array, gates: int, inputs: Array, valid: Array, *biases: Array) -> None:
    """Raise ValueError where shapes do not fit: compiled code would read past the arrays' ends.

    - ``kernel``: (F + H, gates x H), for F features and hidden size H.
    - ``gates``: 4 of an LSTM, 3 of a GRU.
    - ``inputs``: (time, batch, F).
    - ``valid``: (time, batch).
    - ``biases``: one of all gates, (gates x H,), and of a GRU that of the new gate, (H,).
    """
    size = kernel.shape[-1] // gates
    expected = (inputs.shape[-1] + size, gates * size)
    if inputs.ndim != 3 or kernel.shape != expected or valid.shape != inputs.shape[:2]:
        raise ValueError(
            f"expected inputs (T, B, F), valid (T, B) and a kernel (F + H, {gates}H); got "
            f"{inputs.shape}, {valid.shape} and {kernel.shape}"
        )
    for bias, width in zip(biases, (gates * size, size), strict=False):
        if bias.shape != (width,):
            raise ValueError(f"expected a bias ({width},); got {bias.shape}")


def lstm_infer(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Float[Array, "time batch gates//4"]:
    """Hidden states; arguments as for :func:`forecaster.swarm.recurrence.lstm`."""
    out = _array(*inputs.shape[:2], bias.shape[-1] // 4)
    return _call("lstm_infer", out)(kernel, bias, inputs, valid)


def lstm_forward(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Sequence[Array]:
    """Hidden states, and cell states and gates for the backward pass, in an order of its own."""
    steps, batch, size = *inputs.shape[:2], bias.shape[-1] // 4
    saved = _saved_width(size)
    out = [_array(steps, batch, width) for width in (size, saved, 4 * saved)]
    return _call_many("lstm_forward", out)(kernel, bias, inputs, valid)


def lstm_backward(
    residuals: Sequence[Array], grad_hidden: Array, *, last_only: bool, want_inputs: bool
) -> Sequence[Array]:
    """Gradients of kernel, bias and inputs; those of the inputs are worthless unless wanted.

    ``residuals``: kernel, inputs, valid and what :func:`lstm_forward` returned. ``grad_hidden``:
    (time, batch, H), or with ``last_only`` the last step's, (batch, H).
    """
    kernel, inputs = residuals[:2]
    out = [_array(*kernel.shape), _array(kernel.shape[-1]), _array(*inputs.shape)]
    call = _call_many("lstm_backward", out)
    return call(*residuals, grad_hidden, last_only=last_only, want_x=want_inputs)


def gru_infer(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    new_bias: Float[Array, " gates//3"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Float[Array, "time batch gates//3"]:
    """Hidden states; arguments as for :func:`forecaster.swarm.recurrence.gru`."""
    out = _array(*inputs.shape[:2], new_bias.shape[-1])
    return _call("gru_infer", out)(kernel, bias, new_bias, inputs, valid)


def gru_forward(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    new_bias: Float[Array, " gates//3"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Sequence[Array]:
    """Hidden states, and gates for the backward pass, in an order of its own."""
    steps, batch, size = *inputs.shape[:2], new_bias.shape[-1]
    out = [_array(steps, batch, width) for width in (size, 4 * _saved_width(size))]
    return _call_many("gru_forward", out)(kernel, bias, new_bias, inputs, valid)


def gru_backward(
    residuals: Sequence[Array], grad_hidden: Array, *, last_only: bool, want_inputs: bool
) -> Sequence[Array]:
    """Gradients of kernel, both biases and inputs; otherwise as :func:`lstm_backward`."""
    kernel, inputs = residuals[:2]
    width = kernel.shape[-1]
    out = [_array(*kernel.shape), _array(width), _array(width // 3), _array(*inputs.shape)]
    call = _call_many("gru_backward", out)
    return call(*residuals, grad_hidden, last_only=last_only, want_x=want_inputs)


def _saved_width(size: int) -> int:
    """As ``saved_width`` in kernels.h: room for whole vectors, however wide."""
    return -(-size // 16) * 16


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _call(name: str, out: jax.ShapeDtypeStruct) -> Callable[..., Array]:
    return jax.ffi.ffi_call(f"forecaster_{name}", out, vmap_method="broadcast_all")


def _call_many(name: str, out: Sequence[jax.ShapeDtypeStruct]) -> Callable[..., Sequence[Array]]:
    return jax.ffi.ffi_call(f"forecaster_{name}", out, vmap_method="broadcast_all")
