"""Parse JSON that anything may have written."""

import json
import math
import reprlib
from typing import Any, NoReturn


def parse_json(raw: bytes) -> dict[str, Any]:
    """Parse an object in strict JSON: no NaN, no infinity, no number beyond a float.

    Raises ValueError for anything else.
    """
    try:
        content = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"expected an object; got {reprlib.repr(content)}")
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{reprlib.repr(digits)} is beyond any number")
    return number
