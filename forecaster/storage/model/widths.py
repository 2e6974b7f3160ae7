"""The width and the tails of a model's bands as JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from forecaster.forecasting import FARTHEST_TAIL, KNOTS, Widths
from forecaster.storage.model.fields import above_zero, field

_SPREAD, _WITHOUT, _TAILS = "spread", "spread_without", "tails"


def widths_to_json(widths: Widths) -> dict[str, Any]:
    """Return the fields of a model's JSON that hold the widths."""
    names = _SPREAD, _WITHOUT, _TAILS
    return {name: part.tolist() for name, part in zip(names, widths, strict=True)}


def widths_from_json(rest: Mapping[str, Any], horizon: int) -> Widths:
    """Read what :func:`widths_to_json` returned.

    What older models lack has no influence. Raises TypeError or ValueError for anything else.
    """
    plain = widths_to_json(Widths.unit(horizon))
    said = {_WITHOUT: plain[_WITHOUT], _TAILS: plain[_TAILS], **rest}
    rows = field(list, said, _TAILS)
    if len(rows) != horizon or not all(map(_is_sound, rows)):
        raise ValueError(
            f"{_TAILS}: expected for each of {horizon} steps {len(KNOTS)} numbers that do not fall"
        )
    spread, without = (
        above_zero(field(list, said, name), name, horizon) for name in (_SPREAD, _WITHOUT)
    )
    return Widths(spread, without, np.array(rows, float))


def _is_sound(row: object) -> bool:
    """Return whether these are numbers at the knots, none above ``FARTHEST_TAIL``, in order."""
    if not isinstance(row, list) or len(row) != len(KNOTS):
        return False
    numbers = all(type(value) in (int, float) and 0 <= value <= FARTHEST_TAIL for value in row)
    return numbers and sorted(row) == row
