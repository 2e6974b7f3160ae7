"""The compiled code: loads it, and says why where it does not run.

``FORECASTER_KERNEL=off`` turns it off; ``plain``, ``avx2``, ``avx512``, ``avx512-bf16`` or ``amx``
allows no more than that instruction set. By default the best one that the machine has is used.
AVX-512 BF16 and matrix units (AMX) serve the precision bfloat16 alone; ``amx-emulated`` computes by
AVX-512 what matrix units would, no faster than float32, to try it on other machines.
"""

import ctypes
import functools

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.swarm.native import processor

_LIBRARY = processor.LIBRARY
_PASSES = ("infer", "forward", "backward")
_TARGETS = (
    processor.HASH,
    *(f"forecaster_{cell}_{one}" for cell in ("lstm", "gru", "bfloat16") for one in _PASSES),
)


@functools.cache
def kernel_status() -> tuple[str | None, str]:
    """The kernel's instruction set and "", or None and the reason why it does not run."""
    if why_not := processor.why_turned_off():
        return None, why_not
    if jax.default_backend() != "cpu":
        return None, f"it is for CPUs; JAX runs on {jax.default_backend()}"
    try:
        if _LIBRARY.exists():
            library = ctypes.cdll.LoadLibrary(str(_LIBRARY))
            for name in _TARGETS:
                capsule = jax.ffi.pycapsule(getattr(library, name))
                jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    except Exception as error:  # built for another machine or jaxlib: JAX alone does it too
        return None, f"it cannot be loaded: {str(error).splitlines()[0]}"
    return processor.loaded_instructions(_LIBRARY)


def bfloat16_status() -> tuple[str | None, str]:
    """By what products of bfloat16 are computed here and "", or None and the reason why not.

    ``amx``, ``avx512-bf16``, or ``amx-emulated`` where FORECASTER_KERNEL asks for that.
    """
    return processor.bfloat16_status(kernel_status(), _LIBRARY)


def why_no_bfloat16(by: str) -> str:
    """Why the loaded kernel cannot compute by these instructions here; empty where it can.

    ``by``: ``amx``, ``avx512-bf16`` or ``amx-emulated``.
    """
    return processor.why_no_bfloat16(_LIBRARY, by)


def usable(*arrays: Array) -> bool:
    """Whether the kernel can be called on these arrays: float32, on a CPU, and it was loaded."""
    return all(array.dtype == jnp.float32 for array in arrays) and kernel_status()[0] is not None


def bfloat16_usable(*arrays: Array) -> bool:
    """Whether the kernel can be asked for products of bfloat16 of these arrays, float32."""
    return usable(*arrays) and bfloat16_status()[0] is not None
