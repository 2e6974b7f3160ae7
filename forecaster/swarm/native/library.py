"""Load the compiled code, or give the reason why it does not run.

``FORECASTER_KERNEL=off`` turns it off; ``plain``, ``avx2``, ``avx512``, ``avx512-bf16`` or ``amx``
limits it to that instruction set. By default the best one of the machine is used. AVX-512 BF16 and
matrix units (AMX) serve only the precision bfloat16; ``amx-emulated`` emulates matrix units by
AVX-512, no faster than float32, for tests on other machines.

JAX is imported only where it is asked: the import takes longer than :func:`built_status`.
"""

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from jax import Array

Status: TypeAlias = tuple[str | None, str]
"""The instruction set that runs and "", or None and the reason why none does."""

_LIBRARY = Path(__file__).parent / "_kernels.so"
_NOT_BUILT = "not_built.txt"  # as in compiling.py, which also runs as a script
_BFLOAT16 = ("avx512-bf16", "amx", "amx-emulated")
_SETS = ("plain", "avx2", "avx512", *_BFLOAT16)
_PASSES = ("infer", "forward", "backward")
_TARGETS = [f"forecaster_{cell}_{one}" for cell in ("lstm", "gru", "bfloat16") for one in _PASSES]


def built_status() -> Status:
    """Return the instruction set that the compiled code chooses on this machine's CPU."""
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked == "off":
        return None, "turned off by FORECASTER_KERNEL"
    if asked not in ("", *_SETS):
        expected = ", ".join(_SETS)
        return None, f"FORECASTER_KERNEL is {asked!r}; expected off, {expected}, or nothing"
    if not _LIBRARY.exists():
        return None, f"it was not built: {_why_not_built()}"
    try:
        loaded = ctypes.cdll.LoadLibrary(str(_LIBRARY))
        for name in ("forecaster_why_not", "forecaster_prefers_avx512_bf16"):
            getattr(loaded, name)  # missing in a library of another version
        find = loaded.forecaster_instructions
        find.restype = ctypes.c_char_p
        return find().decode(), ""
    except Exception as error:  # built for another machine; JAX alone works too
        return None, _cannot_be_loaded(error)


@functools.cache
def kernel_status() -> Status:
    """Return the kernel's instruction set and "", or None and the reason why it does not run.

    Starts JAX, which may run on another device, and registers the kernel's calls with it.
    """
    import jax

    if jax.default_backend() != "cpu":
        return None, f"it is for CPUs; JAX runs on {jax.default_backend()}"
    runs, why_not = built_status()
    if runs is None:
        return None, why_not
    try:
        library = ctypes.cdll.LoadLibrary(str(_LIBRARY))
        for name in _TARGETS:
            capsule = jax.ffi.pycapsule(getattr(library, name))
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    except Exception as error:  # built for another jaxlib; JAX alone works too
        return None, _cannot_be_loaded(error)
    return runs, ""


def bfloat16_status() -> Status:
    """Return the instructions for bfloat16 products here and "", or None and the reason why not."""
    return bfloat16_with(kernel_status())


def bfloat16_with(kernel: Status) -> Status:
    """Return the instructions for bfloat16 products, given the kernel's status.

    ``amx``, ``avx512-bf16``, or ``amx-emulated`` if FORECASTER_KERNEL asks for it. By default
    AVX-512 BF16 is used on AMD's processors only, where an instruction does twice the products of
    float32 in the same time: on Intel's it takes twice as long.
    """
    runs, why_not = kernel
    if runs is None:
        return None, why_not
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked and asked not in _BFLOAT16:
        return None, f"FORECASTER_KERNEL={asked} allows no bfloat16 products"
    if asked in ("avx512-bf16", "amx-emulated"):
        why_not = why_no_bfloat16(asked)
        return (None if why_not else asked), why_not
    if not (no_amx := why_no_bfloat16("amx")):
        return "amx", ""
    if why_not := why_no_bfloat16("avx512-bf16"):
        return None, why_not if no_amx == why_not else f"{no_amx}, {why_not}"
    if not _prefers_avx512_bf16():
        return None, f"{no_amx}, and AVX-512 BF16 is no faster than float32 on this one"
    return "avx512-bf16", ""


def why_no_bfloat16(by: str) -> str:
    """Return why the library cannot use these instructions here; empty if it can.

    ``by``: ``amx``, ``avx512-bf16`` or ``amx-emulated``
    """
    find = ctypes.cdll.LoadLibrary(str(_LIBRARY)).forecaster_why_not
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_char_p
    return find(by.encode()).decode()


def usable(*arrays: "Array") -> bool:
    """Return whether the kernel is loaded and the arrays are float32, on a CPU."""
    return all(array.dtype == np.float32 for array in arrays) and kernel_status()[0] is not None


def _prefers_avx512_bf16() -> bool:
    find = ctypes.cdll.LoadLibrary(str(_LIBRARY)).forecaster_prefers_avx512_bf16
    find.restype = ctypes.c_bool
    return find()


def _why_not_built() -> str:
    """Return the reason that the package's build recorded."""
    try:
        return _LIBRARY.with_name(_NOT_BUILT).read_text().strip()
    except OSError:
        return "there was no C++ compiler when forecaster was installed"


def _cannot_be_loaded(error: Exception) -> str:
    return f"it cannot be loaded: {str(error).splitlines()[0]}"
