"""The precision of matrix products on this machine, in words.

JAX is imported only when it is needed: the import takes longer than the check.
"""

from forecaster.swarm.native import processor
from forecaster.swarm.native.processor import Status


def products_of(precision: str) -> str:
    """Return how a precision is computed here, such as ``float32`` or ``bfloat16 (amx)``; asks JAX.

    Raises SwarmError for an unknown precision.
    """
    from forecaster.swarm.native import library
    from forecaster.swarm.recurrence.precision import check_precision

    if check_precision(precision) == "float32":
        return "float32"
    return _in_words(library.kernel_status(), library.bfloat16_status())


def processor_status() -> tuple[Status, str]:
    """Return the status of the compiled code here, and how the precision bfloat16 is computed.

    The status is the instruction set, or None and the reason why the code does not run. JAX is
    imported only if it might run on another device than the CPU.
    """
    if processor.may_have_accelerator():
        from forecaster.swarm.devices.lanes import use_all_cores
        from forecaster.swarm.native import kernel_status

        use_all_cores()  # before JAX starts
        return kernel_status(), products_of("bfloat16")
    why_not = processor.why_turned_off()
    kernel = (None, why_not) if why_not else processor.loaded_instructions(processor.LIBRARY)
    return kernel, _in_words(kernel, processor.bfloat16_status(kernel, processor.LIBRARY))


def _in_words(kernel: Status, bfloat16: Status) -> str:
    """Return how bfloat16 is computed, given the status of compiled code and of bfloat16."""
    units, why_not = bfloat16
    if units is not None:
        return f"bfloat16 ({units})"
    return (
        "bfloat16 (JAX alone)" if kernel[0] is None else f"float32 in place of bfloat16 ({why_not})"
    )
