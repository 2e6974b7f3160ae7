"""The width and the tails of a model's bands as JSON."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np
from msgspec import Meta

from forecaster.forecasting import FARTHEST_TAIL, KNOTS, Widths
from forecaster.storage.model.fields import above_zero, field

_SPREAD, _WITHOUT, _TAILS = "spread", "spread_without", "tails"
_Row: TypeAlias = Annotated[
    list[Annotated[float, Meta(ge=0, le=FARTHEST_TAIL)]],
    Meta(min_length=len(KNOTS), max_length=len(KNOTS)),
]
"""The tails of one step: a number at each knot."""


def widths_to_json(widths: Widths) -> dict[str, Any]:
    """Return the fields of a model's JSON that hold the widths."""
    names = _SPREAD, _WITHOUT, _TAILS
    return {name: part.tolist() for name, part in zip(names, widths, strict=True)}


def widths_from_json(rest: Mapping[str, Any], horizon: int) -> Widths:
    """Read what :func:`widths_to_json` returned.

    What older models lack has no influence. Raises ValueError for anything else.
    """
    plain = widths_to_json(Widths.unit(horizon))
    said = {_WITHOUT: plain[_WITHOUT], _TAILS: plain[_TAILS], **rest}
    rows = field(list[_Row], said, _TAILS)
    if len(rows) != horizon or any(sorted(row) != row for row in rows):
        raise ValueError(f"{_TAILS}: expected for each of {horizon} steps numbers that do not fall")
    spread, without = (above_zero(said, name, horizon) for name in (_SPREAD, _WITHOUT))
    return Widths(spread, without, np.array(rows, float))
