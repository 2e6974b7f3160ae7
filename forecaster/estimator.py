"""The same as an estimator, with the conventions of Nixtla's libraries."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import pandas as pd

from forecaster.config import Config
from forecaster.errors import UsageError
from forecaster.evaluation import cross_validation
from forecaster.forecasting import RISE, Model, fit, predict
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel

_NAIVE = "Naive"


class Forecaster:
    """Networks for many series, used as the estimators of statsforecast or mlforecast are.

        Forecaster(horizon=5).fit(df).predict(level=[80])

    Frames have columns ``unique_id, ds, y`` or others that are told; forecasts come with the same
    names, the median under the model's (``LSTM``), and bounds ``LSTM-lo-80, LSTM-hi-80``. The
    frequency is found in the times. Frames may be of pandas, polars or pyarrow; forecasts are of
    pandas.

    - ``horizon``: steps ahead, the most that can be asked for
    - ``seed``: the same seed gives the same networks, bit for bit
    - ``settings``: further settings of :class:`forecaster.Config`

    After :meth:`fit`, ``model_`` is the :class:`forecaster.Model` and ``panel_`` what it learned
    from. Raises UsageError for a setting that there is not, or out of its range.
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
        """Train; returns the estimator itself.

        ``df``: a frame as :func:`forecaster.load_panel` takes it, or a panel; ``columns``: what its
        columns are (``id_col``, ``time_col``, ``target_col``, ...). Raises as
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
        """Forecast each series from its latest row, a row per series and step.

        - ``h``: how many steps; by default and at the most the horizon
        - ``level``: of bands in percent; None: the median only
        - ``df``: newer rows of the series; by default those that were learned from
        - ``columns``: what its columns are, by default as for :meth:`fit`

        Raises UsageError before :meth:`fit` and for an ``h`` beyond the horizon, otherwise as
        :func:`forecaster.predict`.
        """
        if self.model_ is None or self.panel_ is None:
            raise UsageError("the estimator is not fitted; call fit(df) first")
        horizon = self.config.horizon
        h = horizon if h is None else h
        if not 1 <= h <= horizon:
            raise UsageError(f"h: expected 1 to {horizon}, the horizon it was made with; got {h}")
        names = self._names | _own_names(columns)
        panel = self.panel_ if df is None else as_panel(df, **{**self._columns, **columns})
        frame = predict(self.model_, panel, level or []).drop(columns=RISE)
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
        """Forecasts from ``n_windows`` cutoffs, ``step_size`` times apart, next to the outcomes.

        - ``h``: steps ahead, by default the horizon
        - ``level``: of bands in percent; None: the median only
        - ``refit``: train at the first cutoff only, at each (True), or at every so many
        - ``df, columns``: as for :meth:`fit`, which need not have been called

        Returns ``unique_id, ds, cutoff, y`` and the model's columns. Raises as
        :func:`forecaster.cross_validation`.
        """
        config = self.config if h is None else dataclasses.replace(self.config, horizon=h)
        frame = cross_validation(
            as_panel(df, **columns), config, n_windows, step_size,
            refit=refit, level=level or [], seed=self.seed,
        )  # fmt: skip
        target = columns.get("target_col")
        names = _own_names(columns) | ({"y": target} if target and not columns.get("wide") else {})
        return frame.drop(columns=_NAIVE).rename(columns=names)


def _own_names(columns: ColumnOptions) -> dict[str, str]:
    """What the caller calls the series and the times."""
    names = {"unique_id": columns.get("id_col"), "ds": columns.get("time_col")}
    return {name: own for name, own in names.items() if own is not None}
