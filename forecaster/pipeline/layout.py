"""Arrange forecasts in a table whose columns never change, for databases and other programs.

The columns are the same for every model, for any bands and for all kinds of series. There is a
median and no mean: the mean of a price whose logarithm has a Student-t distribution is infinite.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.files import run_name
from forecaster.forecasting import FORECAST_BY, Method, quantile_column

if TYPE_CHECKING:
    from forecaster.pipeline.predicting import Prediction

FIXED_QUANTILES = tuple(round(number / 20, 2) for number in range(1, 20))
"""The quantiles of the layout: 0.05, 0.1 ... 0.95; 0.5 is the column ``median``."""
FLAGS = ("simulated", "jumped", "unadjusted", "frozen", "behind", "late", "ended")
"""Words in the column ``flags``, in their order."""
_COLUMN = {q: "median" if q == 0.5 else f"q{round(100 * q):02d}" for q in FIXED_QUANTILES}
COLUMNS = (
    "run", "model", "made", "origin", "unique_id", "ds", "step", "median",
    *(name for name in _COLUMN.values() if name != "median"), "forecast_by", "flags",
)  # fmt: skip
"""The columns, in their order."""


def fixed_columns(made: "Prediction", now: datetime | None = None) -> pd.DataFrame:
    """Return forecasts with :data:`COLUMNS`, a row per series and time.

    - ``run``, ``model``: the name of the run, and of the kind of model
    - ``made``: the time of the forecast in UTC, without a time zone, which some formats lack
    - ``origin``: the time of the series' latest row; ``step``: number of steps from it to ``ds``
    - ``median``, ``q05`` ... ``q95``: quantiles, in the units of the series
    - ``forecast_by``: the basis of the forecast, see :class:`forecaster.forecasting.Method`
    - ``flags``: words of :data:`FLAGS` that hold for the series, separated by commas; "" for none

    ``made``: a prediction with all of :data:`FIXED_QUANTILES`; ``now``: its time, by default now
    """
    frame, model = made.frame, made.model.config.column
    ids = frame["unique_id"].astype(str)
    ends = {
        name: made.panel.times[seen][-1]
        for name, seen in zip(made.panel.ids, made.panel.mask, strict=True)
    }
    moment = pd.Timestamp(now or datetime.now(UTC)).tz_convert("UTC").tz_localize(None).floor("s")
    kinds = {name: {"simulated"} if made.simulated else set[str]() for name in ends}
    for one in made.findings:
        kinds.get(one.name, set()).add(one.kind)  # those that are retired have no forecasts
    flags = {name: ",".join(flag for flag in FLAGS if flag in its) for name, its in kinds.items()}
    columns = {
        "run": run_name(made.run),
        "model": model,
        "made": moment,
        "origin": np.array([ends[name] for name in ids]),
        "unique_id": frame["unique_id"],
        "ds": frame["ds"],
        "step": frame.groupby(ids.to_numpy()).cumcount() + 1,
        **{name: frame[quantile_column(model, q)] for q, name in _COLUMN.items()},
        "forecast_by": frame.get(FORECAST_BY, Method.OWN.value),
        "flags": [flags[name] for name in ids],
    }
    return pd.DataFrame(columns, index=frame.index)[list(COLUMNS)]
