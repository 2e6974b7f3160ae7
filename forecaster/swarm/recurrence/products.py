"""Which numbers a recurrence multiplies on this machine, in words.

Nothing here loads JAX, whose import takes longer than all the rest of an answer, but where it has
to be asked.
"""

from forecaster.swarm.native import processor
from forecaster.swarm.native.processor import Status


def products_of(precision: str) -> str:
    """What a precision comes to here, such as ``float32`` or ``bfloat16 (amx)``; asks JAX.

    Raises SwarmError for what is no precision.
    """
    from forecaster.swarm.native import library
    from forecaster.swarm.recurrence.precision import check_precision

    if check_precision(precision) == "float32":
        return "float32"
    return _in_words(library.kernel_status(), library.bfloat16_status())


def processor_status() -> tuple[Status, str]:
    """The instruction set of the compiled code here, and what the precision bfloat16 comes to.

    The former, or None and the reason why it does not run. JAX is loaded only where it might run on
    something else than the CPU.
    """
    if processor.may_have_accelerator():
        from forecaster.swarm.devices.lanes import use_all_cores
        from forecaster.swarm.native import kernel_status

        use_all_cores()  # before anything starts JAX
        return kernel_status(), products_of("bfloat16")
    why_not = processor.why_turned_off()
    kernel = (None, why_not) if why_not else processor.loaded_instructions(processor.LIBRARY)
    return kernel, _in_words(kernel, processor.bfloat16_status(kernel, processor.LIBRARY))


def _in_words(kernel: Status, bfloat16: Status) -> str:
    """What bfloat16 comes to where these are the states of compiled code and bfloat16."""
    units, why_not = bfloat16
    if units is not None:
        return f"bfloat16 ({units})"
    return (
        "bfloat16 (JAX alone)" if kernel[0] is None else f"float32 in place of bfloat16 ({why_not})"
    )
