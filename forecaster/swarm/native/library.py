"""Load the compiled code, or give the reason why it does not run.

``FORECASTER_KERNEL=off`` turns it off; ``plain``, ``avx2``, ``avx512``, ``avx512-bf16`` or ``amx``
limits it to that instruction set. By default the best one of the machine is used. AVX-512 BF16 and
matrix units (AMX) serve only the precision bfloat16; ``amx-emulated`` emulates matrix units by
AVX-512, no faster than float32, for tests on other machines.
"""

import ctypes
import functools

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.swarm.native import processor

_LIBRARY = processor.LIBRARY
_PASSES = ("infer", "forward", "backward")
_TARGETS = [f"forecaster_{cell}_{one}" for cell in ("lstm", "gru", "bfloat16") for one in _PASSES]


@functools.cache
def kernel_status() -> tuple[str | None, str]:
    """Return the kernel's instruction set and "", or None and the reason why it does not run."""
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
    except Exception as error:  # built for another machine or jaxlib; JAX alone works too
        return None, f"it cannot be loaded: {str(error).splitlines()[0]}"
    return processor.loaded_instructions(_LIBRARY)


def bfloat16_status() -> tuple[str | None, str]:
    """Return the instructions for bfloat16 products here and "", or None and the reason why not.

    ``amx``, ``avx512-bf16``, or ``amx-emulated`` if FORECASTER_KERNEL asks for it.
    """
    return processor.bfloat16_status(kernel_status(), _LIBRARY)


def why_no_bfloat16(by: str) -> str:
    """Return why the loaded kernel cannot use these instructions here; empty if it can.

    ``by``: ``amx``, ``avx512-bf16`` or ``amx-emulated``.
    """
    return processor.why_no_bfloat16(_LIBRARY, by)


def usable(*arrays: Array) -> bool:
    """Return whether the kernel is loaded and the arrays are float32, on a CPU."""
    return all(array.dtype == jnp.float32 for array in arrays) and kernel_status()[0] is not None


def bfloat16_usable(*arrays: Array) -> bool:
    """Return whether the kernel can multiply these float32 arrays in bfloat16."""
    return usable(*arrays) and bfloat16_status()[0] is not None
