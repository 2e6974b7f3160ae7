"""Which numbers a recurrence multiplies in this process, in words."""

from forecaster.swarm.recurrence.native import kernel_status, matrix_status
from forecaster.swarm.recurrence.precision import check_precision


def products_of(precision: str) -> str:
    """What a precision comes to here, such as ``float32`` or ``bfloat16 (amx)``.

    Raises SwarmError for what is no precision.
    """
    if check_precision(precision) == "float32":
        return "float32"
    units, why_not = matrix_status()
    if units is not None:
        return f"bfloat16 ({units})"
    if kernel_status()[0] is None:
        return "bfloat16 (JAX alone)"
    return f"float32 in place of bfloat16 ({why_not})"
