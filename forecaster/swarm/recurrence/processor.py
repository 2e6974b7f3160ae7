"""The compiled recurrence as the processor sees it: whether it is there, and what it would run on.

Nothing here loads JAX, whose import takes longer than all the rest of an answer. Whether the code
is called is decided in ``native``, which asks JAX too.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
from pathlib import Path

from forecaster.swarm.recurrence.products import Status, in_words

LIBRARY = Path(__file__).parent / "native" / "_recurrence.so"
_NOT_BUILT = "not_built.txt"  # as in native/compiling.py, which is a script of its own
_SETS = ("plain", "avx2", "avx512", "amx", "amx-emulated")


def processor_status() -> tuple[Status, str]:
    """The instruction set of the compiled code here, and what the precision bfloat16 comes to.

    The former, or None and the reason why it does not run. JAX is loaded only where it might run on
    something else than the CPU.
    """
    if _may_have_accelerator():
        from forecaster.swarm.lanes import use_all_cores
        from forecaster.swarm.recurrence.native import kernel_status
        from forecaster.swarm.recurrence.native import matrix_status as matrix_status_in_jax

        use_all_cores()  # before anything starts JAX
        return kernel_status(), in_words(kernel_status(), matrix_status_in_jax())
    why_not = why_turned_off()
    kernel: Status = (None, why_not) if why_not else loaded_instructions(LIBRARY)
    return kernel, in_words(kernel, matrix_status(kernel, LIBRARY))


def why_turned_off() -> str:
    """Why FORECASTER_KERNEL allows no compiled code; empty where it does."""
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked == "off":
        return "turned off by FORECASTER_KERNEL"
    if asked not in ("", *_SETS):
        return f"FORECASTER_KERNEL is {asked!r}; expected off, {', '.join(_SETS)}, or nothing"
    return ""


def loaded_instructions(library: Path) -> Status:
    """The instruction set that a compiled library chooses, or None and why it cannot be loaded."""
    if not library.exists():
        return None, f"it was not built: {_why_not_built(library)}"
    try:
        find = ctypes.cdll.LoadLibrary(str(library)).forecaster_instructions
        find.restype = ctypes.c_char_p
        return find().decode(), ""
    except Exception as error:  # built for another machine: JAX alone does it too
        return None, f"it cannot be loaded: {str(error).splitlines()[0]}"


def matrix_status(kernel: Status, library: Path) -> Status:
    """``amx`` or ``amx-emulated``, or None and the reason why not, beside the kernel's status."""
    runs, why_not = kernel
    if runs is None:
        return None, why_not
    asked = os.environ.get("FORECASTER_KERNEL", "")
    if asked not in ("", "amx", "amx-emulated"):
        return None, f"FORECASTER_KERNEL={asked} allows no matrix units"
    why_not = why_no_matrix_units(library, emulated=asked == "amx-emulated")
    return (None if why_not else asked or "amx"), why_not


def why_no_matrix_units(library: Path, *, emulated: bool) -> str:
    """Why a library that can be loaded cannot use or emulate them here; empty where it can."""
    find = ctypes.cdll.LoadLibrary(str(library)).forecaster_no_matrix_units
    find.argtypes, find.restype = [ctypes.c_bool], ctypes.c_char_p
    return find(emulated).decode()


def _why_not_built(library: Path) -> str:
    """The reason that the build of the package wrote down."""
    try:
        return (library.parent / _NOT_BUILT).read_text().strip()
    except OSError:
        return "there was no C++ compiler when forecaster was installed"


def _may_have_accelerator() -> bool:
    """Whether JAX could choose another backend than the CPU: it then has a plugin for it."""
    if named := os.environ.get("JAX_PLATFORMS", ""):
        return named.split(",")[0] != "cpu"
    found = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return found or bool(importlib.metadata.entry_points(group="jax_plugins"))
