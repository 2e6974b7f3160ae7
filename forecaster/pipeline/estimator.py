"""An estimator with ``fit`` and ``predict``, by the conventions of Nixtla's libraries."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, wrong_argument
from forecaster.evaluation import cross_validation
from forecaster.forecasting import FORECAST_BY, RISE, Config, Model, fit, predict
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel

_NAIVE = "Naive"


class Forecaster:
    """Networks for many series, used like the estimators of statsforecast or mlforecast.

        Forecaster(horizon=5).fit(df).predict(level=[80])

    Frames have the columns ``unique_id, ds, y``, or others that you name; forecasts have the same
    names, the median in a column named after the model (``LSTM``), and bounds in ``LSTM-lo-80,
    LSTM-hi-80``. The frequency is inferred from the times. Frames may be pandas, polars or pyarrow;
    forecasts are pandas frames.

    - ``horizon``: maximum number of steps ahead
    - ``seed``: the same seed gives the same networks, bit for bit
    - ``settings``: further settings of :class:`forecaster.Config`

    After :meth:`fit`, ``model_`` is the :class:`forecaster.Model`, and ``panel_`` the panel that it
    was fitted to. Raises UsageError for an unknown setting, or a value out of its range.
    """

    def __init__(self, horizon: int = 5, *, seed: int = 0, **settings: Any):
        self.config = Config.from_dict({"horizon": horizon, **settings}, "Forecaster")
        self.seed = seed
        self.model_: Model | None = None
        self.panel_: Panel | None = None
        self._names: dict[str, str] = {}
        self._columns: ColumnOptions = {}

    def __repr__(self) -> str:
        usual = Config(horizon=self.config.horizon)
        fields = [field.name for field in dataclasses.fields(Config)]
        changed = [n for n in fields if getattr(self.config, n) != getattr(usual, n)]
        words = [f"{name}={getattr(self.config, name)!r}" for name in ("horizon", *changed)]
        fitted = "" if self.model_ is None else f"\n{self.model_!r}"
        return f"Forecaster({', '.join(words)}, seed={self.seed}){fitted}"

    def fit(self, df: Panel | Table, **columns: Unpack[ColumnOptions]) -> "Forecaster":
        """Train, and return the estimator itself.

        ``df``: a panel, or a frame as for :func:`forecaster.load_panel`; ``columns``: the names of
        its columns (``id_col``, ``time_col``, ``target_col``, ...). Raises the same errors as
        :func:`forecaster.fit`.
        """
        panel = as_panel(df, **columns)
        self.model_, self.panel_ = fit(panel, self.config, self.seed), panel
        self._names, self._columns = _own_names(columns), columns
        return self

    def predict(
        self,
        h: int | None = None,
        level: Sequence[float] | None = None,
        df: Panel | Table | None = None,
        **columns: Unpack[ColumnOptions],
    ) -> pd.DataFrame:
        """Forecast each series from its latest row; return a row per series and step.

        - ``h``: number of steps, at most the horizon, which is the default
        - ``level``: coverage of the bands in percent; None: only the median
        - ``df``: the series with newer rows; by default the rows that were fitted
        - ``columns``: the names of the columns of ``df``, by default as for :meth:`fit`

        Raises UsageError before :meth:`fit` and for an ``h`` beyond the horizon, and the same
        errors as :func:`forecaster.predict`.
        """
        if self.model_ is None or self.panel_ is None:
            raise UsageError("the estimator is not fitted; call fit(df) first")
        horizon = self.config.horizon
        h = horizon if h is None else h
        if isinstance(h, bool) or not isinstance(h, int | np.integer) or not 1 <= h <= horizon:
            raise wrong_argument("h", h, f"1 to {horizon}, the estimator's horizon")
        names = self._names | _own_names(columns)
        panel = self.panel_ if df is None else as_panel(df, **{**self._columns, **columns})
        frame = predict(self.model_, panel, [] if level is None else level)
        frame = frame.drop(columns=[RISE, FORECAST_BY], errors="ignore")
        frame = frame.groupby("unique_id", sort=False).head(h).reset_index(drop=True)
        return frame.rename(columns=names)

    def cross_validation(
        self,
        df: Panel | Table,
        h: int | None = None,
        n_windows: int = 1,
        step_size: int = 1,
        level: Sequence[float] | None = None,
        *,
        refit: bool | int = False,
        **columns: Unpack[ColumnOptions],
    ) -> pd.DataFrame:
        """Forecast from ``n_windows`` cutoffs, ``step_size`` steps apart; return also the outcomes.

        - ``h``: number of steps ahead, by default the horizon
        - ``level``: coverage of the bands in percent; None: only the median
        - ``refit``: train at the first cutoff only (False), at each (True), or at every n-th (n)
        - ``df, columns``: as for :meth:`fit`, which need not be called before

        Returns ``unique_id, ds, cutoff, y`` and the model's columns. Raises the same errors as
        :func:`forecaster.cross_validation`.
        """
        config = self.config if h is None else dataclasses.replace(self.config, horizon=h)
        frame = cross_validation(
            as_panel(df, **columns), config, n_windows, step_size,
            refit=refit, level=[] if level is None else level, seed=self.seed,
        )  # fmt: skip
        target = columns.get("target_col")
        names = _own_names(columns) | ({"y": target} if target and not columns.get("wide") else {})
        frame = frame.drop(columns=[_NAIVE, FORECAST_BY], errors="ignore")
        return frame.rename(columns=names)


def _own_names(columns: ColumnOptions) -> dict[str, str]:
    """Return the caller's names for the columns of series and times."""
    names = {"unique_id": columns.get("id_col"), "ds": columns.get("time_col")}
    return {name: own for name, own in names.items() if isinstance(own, str)}
