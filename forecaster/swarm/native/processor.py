"""Find out, without importing JAX, whether the compiled code exists and what it would run on.

Importing JAX takes longer than this check. ``library``, which asks JAX too, decides whether the
code is called.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import TypeAlias

Status: TypeAlias = tuple[str | None, str]
"""The instruction set that runs and "", or None and the reason why none does."""

LIBRARY = Path(__file__).parent / "_kernels.so"
_NOT_BUILT = "not_built.txt"  # as in compiling.py, which also runs as a script
_BFLOAT16 = ("avx512-bf16", "amx", "amx-emulated")
_SETS = ("plain", "avx2", "avx512", *_BFLOAT16)


def why_turned_off() -> str:
    """Return why FORECASTER_KERNEL allows no compiled code; empty if it does."""
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked == "off":
        return "turned off by FORECASTER_KERNEL"
    if asked not in ("", *_SETS):
        return f"FORECASTER_KERNEL is {asked!r}; expected off, {', '.join(_SETS)}, or nothing"
    return ""


def loaded_instructions(library: Path) -> Status:
    """Return the instruction set that a library chooses, or None and why it cannot be loaded."""
    if not library.exists():
        return None, f"it was not built: {_why_not_built(library)}"
    try:
        loaded = ctypes.cdll.LoadLibrary(str(library))
        for name in ("forecaster_why_not", "forecaster_prefers_avx512_bf16"):
            getattr(loaded, name)  # missing in a library of another version
        find = loaded.forecaster_instructions
        find.restype = ctypes.c_char_p
        return find().decode(), ""
    except Exception as error:  # built for another machine; JAX alone works too
        return None, f"it cannot be loaded: {str(error).splitlines()[0]}"


def bfloat16_status(kernel: Status, library: Path) -> Status:
    """Return the instructions for bfloat16 products, given the kernel's status.

    ``amx``, ``avx512-bf16`` or ``amx-emulated``; or None and the reason why float32 is used
    instead. By default AVX-512 BF16 is used on AMD's processors only, where an instruction does
    twice the products of float32 in the same time: on Intel's it takes twice as long.
    """
    runs, why_not = kernel
    if runs is None:
        return None, why_not
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked and asked not in _BFLOAT16:
        return None, f"FORECASTER_KERNEL={asked} allows no bfloat16 products"
    if asked in ("avx512-bf16", "amx-emulated"):
        why_not = why_no_bfloat16(library, asked)
        return (None if why_not else asked), why_not
    if not (no_amx := why_no_bfloat16(library, "amx")):
        return "amx", ""
    if why_not := why_no_bfloat16(library, "avx512-bf16"):
        return None, why_not if no_amx == why_not else f"{no_amx}, {why_not}"
    if not _prefers_avx512_bf16(library):
        return None, f"{no_amx}, and AVX-512 BF16 is no faster than float32 on this one"
    return "avx512-bf16", ""


def why_no_bfloat16(library: Path, by: str) -> str:
    """Return why a loadable library cannot use these instructions here; empty if it can."""
    find = ctypes.cdll.LoadLibrary(str(library)).forecaster_why_not
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_char_p
    return find(by.encode()).decode()


def _prefers_avx512_bf16(library: Path) -> bool:
    find = ctypes.cdll.LoadLibrary(str(library)).forecaster_prefers_avx512_bf16
    find.restype = ctypes.c_bool
    return find()


def _why_not_built(library: Path) -> str:
    """Return the reason that the package's build recorded."""
    try:
        return (library.parent / _NOT_BUILT).read_text().strip()
    except OSError:
        return "there was no C++ compiler when forecaster was installed"


def may_have_accelerator() -> bool:
    """Return whether JAX could choose another backend than the CPU, for which it needs a plugin."""
    if named := os.environ.get("JAX_PLATFORMS", ""):
        return named.split(",")[0] != "cpu"
    found = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return found or bool(importlib.metadata.entry_points(group="jax_plugins"))
