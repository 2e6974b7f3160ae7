"""The precision of matrix products on this machine, in words."""

from forecaster.swarm.native import library
from forecaster.swarm.native.library import Status


def products_of(precision: str) -> str:
    """Return how a precision is computed here, such as ``float32`` or ``bfloat16 (amx)``; asks JAX.

    Raises SwarmError for an unknown precision.
    """
    from forecaster.swarm.recurrence.running import check_precision  # imports JAX

    if check_precision(precision) == "float32":
        return "float32"
    return _in_words(library.kernel_status(), library.bfloat16_status())


def processor_status() -> tuple[Status, str]:
    """Return the status of the compiled code on CPUs, and how the precision bfloat16 is computed.

    The status is the instruction set, or None and the reason why the code does not run. JAX is not
    imported.
    """
    built = library.built_status()
    return built, _in_words(built, library.bfloat16_with(built))


def _in_words(kernel: Status, bfloat16: Status) -> str:
    """Return how bfloat16 is computed, given the status of compiled code and of bfloat16."""
    units, why_not = bfloat16
    if units is not None:
        return f"bfloat16 ({units})"
    return (
        "bfloat16 (JAX alone)" if kernel[0] is None else f"float32 in place of bfloat16 ({why_not})"
    )
