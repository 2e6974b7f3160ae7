"""Choose the transform of a panel, or read one from a file; prices load no classical models."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from forecaster.series.panel.covariates import Scaling
from forecaster.series.panel.panel import Panel
from forecaster.series.transforms import NAMES, Transform


def transform_class(name: object) -> type[Transform]:
    """Return the class of the transform of a name. Raises ValueError for none of :data:`NAMES`."""
    if name not in NAMES:
        raise ValueError(f"name: expected one of {', '.join(NAMES)}; got {name!r:.50}")
    if name in Transform.names:
        return Transform  # without any classical model
    from forecaster.series.any_series import AnySeries

    return AnySeries


def choose_transform(
    name: str, panel: Panel, season: int | Sequence[int] | None = None, alone: str | None = None
) -> Transform:
    """Return the transform of this name for a panel.

    - ``name``: one of :data:`NAMES`, or ``"auto"``: ``log_return`` for prices, ``combined`` for
      other series
    - ``season``: the steps in a season, or in several; by default from the frequency, or where
      times are whole numbers from the values
    - ``alone``: the classical model that forecasts alone, in the transform ``combined``

    Constant properties of series are added by :meth:`Transform.with_static`, once it is known which
    series are fitted on.
    """
    if name == "auto":
        name = "combined" if panel.target == "y" else "log_return"
    future = () if panel.future is None else panel.future.known_at(panel.times_of_rows())
    made = transform_class(name)(
        name,
        covariates=Scaling(future),
        market=() if panel.market is None else panel.market.ids,
        alone=alone if name == "combined" else None,
    )
    if name == "last_value" and panel.target != "y":
        from forecaster.series.any_series import unit_of_prices

        made = made.with_learned(unit=unit_of_prices(panel))
    return made.with_series(panel, season)


def read_transform(fields: Mapping[str, Any], horizon: int) -> Transform:
    """Read what :meth:`Transform.to_dict` returned. Raises ValueError for anything else.

    ``horizon``: the steps ahead that are forecast
    """
    try:
        made = msgspec.convert(fields, transform_class(fields.get("name")), dec_hook=_array)
        parts = (made, fields), (made.learned, fields.get("learned", {}))
        natures = [(one, fields["natures"][name]) for name, one in made.natures.items()]
        for part, stored in (*parts, *natures) if made.takes_any else parts:
            if missing := [f.name for f in dataclasses.fields(part) if f.name not in stored]:
                raise ValueError(f"{missing[0]}: missing")
        for what, fits in made.sound(horizon).items():
            if not fits:
                raise ValueError(f"{what}: its numbers do not fit those of the rest")
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"transform: {error}") from error
    return made


def _array(kind: Any, value: Any) -> np.ndarray:
    """Read an array of a file. Raises TypeError or ValueError for anything else."""
    del kind
    *shape, text = value
    numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f4").reshape(shape)
    if not np.isfinite(numbers).all():
        raise ValueError("expected finite numbers")
    return numbers.astype(np.float32)
