"""Which numbers a recurrence multiplies in this process, in words."""

from typing import TypeAlias

Status: TypeAlias = tuple[str | None, str]
"""What runs, and an empty text; or None, and the reason why not."""


def products_of(precision: str) -> str:
    """What a precision comes to here, such as ``float32`` or ``bfloat16 (amx)``; asks JAX.

    Raises SwarmError for what is no precision.
    """
    from forecaster.swarm.recurrence.native import bfloat16_status, kernel_status
    from forecaster.swarm.recurrence.precision import check_precision

    if check_precision(precision) == "float32":
        return "float32"
    return in_words(kernel_status(), bfloat16_status())


def in_words(kernel: Status, bfloat16: Status) -> str:
    """What bfloat16 comes to where these are the states of compiled code and bfloat16."""
    units, why_not = bfloat16
    if units is not None:
        return f"bfloat16 ({units})"
    return (
        "bfloat16 (JAX alone)" if kernel[0] is None else f"float32 in place of bfloat16 ({why_not})"
    )
