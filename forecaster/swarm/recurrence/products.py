"""Which numbers a recurrence multiplies in this process, in words."""


def products_of(precision: str) -> str:
    """What a precision comes to here, such as ``float32`` or ``bfloat16 (amx)``; asks JAX.

    Raises SwarmError for what is no precision.
    """
    from forecaster.swarm.native import library
    from forecaster.swarm.native.processor import in_words
    from forecaster.swarm.recurrence.precision import check_precision

    if check_precision(precision) == "float32":
        return "float32"
    return in_words(library.kernel_status(), library.bfloat16_status())
