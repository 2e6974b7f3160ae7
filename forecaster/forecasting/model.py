"""Models: the trained networks of many series, and everything else that a forecast needs."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Unpack

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from forecaster.errors import ModelError, Skipped, UsageError, check_names, check_type, listed, near
from forecaster.forecasting.bands import Widths
from forecaster.forecasting.config import Config
from forecaster.forecasting.methods import FORECAST_BY, Method
from forecaster.forecasting.networks import OwnNetwork
from forecaster.ingest import ColumnOptions, Table
from forecaster.series import (
    CLASSICAL,
    Frequency,
    Transform,
    as_html,
    as_text,
    first_of,
    in_words,
    names_in_short,
    show_time,
)
from forecaster.swarm import take_members

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forecaster.series import Panel


NOT_TRAINED = "not_trained"
"""The status of a series without networks of its own."""
Params: TypeAlias = Mapping[Any, Any]
"""Weights as a nested dict of arrays, as Flax makes it; items of lists have whole-number keys."""


@dataclasses.dataclass(frozen=True)
class Networks:
    """Trained networks: one per series, or several whose distributions are averaged.

    Series without networks of their own are forecast by the common start, or without a network.

    - ``config``: the settings of training; after a search, with the largest hidden size tried
    - ``ids``: the series
    - ``params``: the weights, each array (trained series, member, ...)
    - ``report``: the outcome of training, a row per series, by ``unique_id``; its column
      ``forecast_by``, which :meth:`among` adds, is the :class:`Method` of each
    - ``network``: the class of the networks where it is a user's own
    - ``start``: the weights that the networks of all series started from, each array (member, ...);
      None where they were independent
    - ``computed``: the code that trained them, see :func:`swarm.arithmetic`; empty where unknown
    """

    config: Config
    ids: tuple[str, ...]
    params: Params
    report: pd.DataFrame
    network: OwnNetwork | None = None
    start: Params | None = None
    computed: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        each = jax.tree.leaves(self.params)[0].shape[1]
        return f"Networks({self.config.column}, {len(self.ids)} series, {each} each)"

    @property
    def methods(self) -> Shaped[np.ndarray, " series"]:
        """The means by which each series is forecast."""
        return self.report[FORECAST_BY].to_numpy(object)

    @property
    def trained(self) -> Bool[np.ndarray, " series"]:
        """Which series have networks of their own."""
        return self.methods == Method.OWN

    @property
    def networked(self) -> Bool[np.ndarray, " series"]:
        """Which series are forecast by a network, their own or the common one."""
        return self.trained | (self.methods == Method.COMMON)

    def params_of(self, rows: Int[np.ndarray, " some"]) -> Params:
        """Return the weights that forecast some series, each array (some, member, ...).

        ``rows``: the rows of series that are :attr:`networked`
        """
        own = self.trained
        which = np.where(own, np.cumsum(own) - 1, own.sum())[rows]
        if own[rows].all():
            return take_members(self.params, which)
        return jax.tree.map(
            lambda leaf, common: np.concatenate([leaf, common[None]])[which],
            self.params, self.start,
        )  # fmt: skip

    def among(self, ids: Sequence[str], methods: Shaped[np.ndarray, " series"]) -> "Networks":
        """Return the networks beside series that were not trained; ``methods``: of all series."""
        report = self.report.reindex(pd.Index(ids, name="unique_id"))
        if len(ids) > len(self.ids):
            report["status"] = report["status"].fillna(NOT_TRAINED)
            for name in ("epochs", "best_epoch"):
                report[name] = report[name].fillna(0).astype(int)
        if FORECAST_BY not in report:
            report.insert(0, FORECAST_BY, "")
        report[FORECAST_BY] = np.array([*map(str, methods)], object)
        return dataclasses.replace(self, ids=tuple(ids), report=report)

    def rows_of(self, ids: Sequence[str]) -> np.ndarray:
        """Return the rows of these series in all arrays.

        Raises KeyError for a series without a network.
        """
        row_of = {name: row for row, name in enumerate(self.ids)}
        return np.array([row_of[name] for name in ids], int)

    def only(self, ids: Sequence[str]) -> "Networks":
        """Return the networks of these series, in this order."""
        rows, own = self.rows_of(ids), self.trained
        return dataclasses.replace(
            self,
            ids=tuple(ids),
            params=take_members(self.params, (np.cumsum(own) - 1)[rows[own[rows]]]),
            report=self.report.iloc[rows],
        )


@dataclasses.dataclass(frozen=True)
class Model:
    """The trained networks of many series, and everything else that a forecast needs.

    - ``networks``: the networks; ``config, ids, params, report`` are also properties of the model
    - ``channels, target, frequency``: those of the panel that it was fitted on
    - ``transform``: turns series into features, and forecasts back into values
    - ``normal_scores``: normal scores of the outcomes in the validation span, in order of time, NaN
      where a span is shorter; bands are calibrated on them
    - ``widths``: the width and the tails that the bands of all series start from
    - ``fitted_until``: the latest time in the training of each network
    - ``growth``: of each price's mean from one row to the next, see :func:`.growth_of`
    - ``spacing``: the usual gap between the rows of each series, see
      :func:`forecaster.series.spacing_of`
    - ``skipped``: series of the panel that have no network, with the reason
    - ``provenance``: seed, source, dates and others
    """

    networks: Networks
    channels: tuple[str, ...]
    target: str
    frequency: Frequency
    transform: Transform
    normal_scores: Float[np.ndarray, "series origin horizon"]
    widths: Widths
    fitted_until: Shaped[np.ndarray, " series"]
    growth: Float[np.ndarray, " series"]
    spacing: Float[np.ndarray, " series"]
    skipped: Mapping[str, Skipped]
    provenance: Mapping[str, Any]

    def __repr__(self) -> str:
        return as_text(*_facts_of(self))

    def _repr_html_(self) -> str:
        return as_html(*_facts_of(self))

    def plot(
        self,
        panel: "Panel | Table | None" = None,
        unique_id: str | None = None,
        *,
        level: Sequence[float] = (80, 95),
        ax: "Axes | None" = None,
        **columns: Unpack[ColumnOptions],
    ) -> "Axes":
        """Draw the forecast of a series, or without a panel the errors of all series.

        Errors are absolute errors over the validation span, relative to those of "unchanged".

        - ``panel``: the latest rows of the series, or a frame with them
        - ``unique_id``: the series; by default the panel's first
        - ``level``: levels of the bands, in percent
        - ``ax``: where to draw; by default on a new figure, which a notebook shows
        - ``columns``: meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`
        """
        from forecaster.plotting import plot_model

        return plot_model(self, panel, unique_id, level=level, ax=ax, **columns)

    @property
    def peers(self) -> tuple[str, ...]:
        """The series that show the state of the market; none without a common volatility."""
        common = self.transform.learned.common_volatility
        return () if common is None else common.peers

    @property
    def config(self) -> Config:
        """The settings that the networks were trained with."""
        return self.networks.config

    @property
    def ids(self) -> tuple[str, ...]:
        """The series that are forecast."""
        return self.networks.ids

    @property
    def params(self) -> Params:
        """The weights, a nested dict of arrays (series, member, ...)."""
        return self.networks.params

    @property
    def report(self) -> pd.DataFrame:
        """The outcome of training, a row per series."""
        return self.networks.report

    @property
    def comparison(self) -> pd.DataFrame:
        """How well networks and simpler methods forecast the rows held back, a row per method."""
        return comparison(self.report, self.provenance)

    def only(self, ids: Sequence[str]) -> "Model":
        """Return the model of these series alone, in this order.

        Raises UsageError for anything but names of series that the model forecasts.
        """
        check_names("ids", ids)
        known = set(self.ids)
        if unknown := [name for name in ids if name not in known]:
            raise unknown_series(unknown, self.ids)
        rows = self.networks.rows_of(ids)
        return dataclasses.replace(
            self,
            networks=self.networks.only(ids),
            **{name: getattr(self, name)[rows] for name in _OF_SERIES},
        )


_OF_SERIES = (
    "normal_scores",
    "fitted_until",
    "growth",
    "spacing",
)  # arrays with a row for each series


def unknown_series(unknown: Sequence[str], known: Sequence[str]) -> UsageError:
    """Return the error for series that a model does not forecast; ``known``: those that it does."""
    alike = near(known, unknown[0]) or known
    return UsageError(f"ids: {listed(unknown)}: not in the model; it has {listed(alike)}")


def rename_series(model: Model, names: Mapping[str, str]) -> Model:
    """Return a model whose series have other names; ``names``: the new ones by the old ones.

    Raises ModelError when two indices would have one name.
    """
    common = model.transform.learned.common_volatility
    if not names.keys() & {*model.ids, *model.peers, *model.config.indices}:
        return model
    market = tuple(names.get(name, name) for name in model.config.indices)
    if len(set(market)) < len(market):
        raise ModelError(
            f"the model's networks see the market {listed(model.config.indices)} beside each "
            f"series; these indices have become {listed(dict.fromkeys(market))}. Fit again"
        )
    networks = dataclasses.replace(
        model.networks,
        ids=tuple(names.get(name, name) for name in model.ids),
        config=dataclasses.replace(model.config, market=market),
        report=model.report.rename(index=dict(names)),
    )
    natures = {names.get(name, name): one for name, one in model.transform.natures.items()}
    transform = dataclasses.replace(
        model.transform,
        natures=MappingProxyType(natures),
        covariates=model.transform.covariates.renamed(names),
        market=market,
    ).with_learned(common_volatility=common and common.renamed(names))
    return dataclasses.replace(model, networks=networks, transform=transform)


def _facts_of(model: Model) -> tuple[str, dict[str, str]]:
    """Return the title and the lines that describe a model."""
    config, report = model.config, model.report
    each = jax.tree.leaves(model.params)[0].shape[1]
    steps = f"{config.horizon} step{'s' if config.horizon > 1 else ''}"
    facts = {
        "forecasts": f"{steps} of {model.target} ({in_words(model.frequency)}), each from the "
        f"latest {config.lookback} rows",
        "networks": f"{each} for each series"
        + (", started from one of all series" if config.start == "pooled" else ", independent"),
    }
    if (common := model.transform.learned.common_volatility) is not None:
        seen = f"{len(common.peers)} series" if common.peers else listed(common.market)
        facts["volatility"] = f"also by a common model, which sees the market in {seen}"
    if config.market is not None:
        facts["market"] = listed(config.indices)
    if len(model.fitted_until):
        facts["fitted"] = f"until {show_time(model.fitted_until.max())}"
    ratio = report.get("mae_relative_to_naive")
    if ratio is not None and ratio.notna().any():
        facts["error"] = f"{ratio.median():.3f} times that of 'unchanged' (median, validation span)"
    if model.skipped:
        facts["skipped"] = first_of(model.skipped)
    return f"Model {config.column} of {len(model.ids):,} series: {names_in_short(model.ids)}", facts


def check_model(model: object) -> None:
    """Raise UsageError for anything but a model."""
    expected = "a forecaster.Model, which forecaster.load(folder) reads where it is saved"
    check_type("model", model, Model, expected)


def split_members(leaf: np.ndarray, each: int) -> np.ndarray:
    """Return an array (series x member, ...) as (series, member, ...)."""
    return leaf.reshape(len(leaf) // each, each, *leaf.shape[1:])


def merge_members(params: Params) -> Params:
    """Return weights (series, member, ...) as (series x member, ...)."""
    return jax.tree.map(
        lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), params
    )


def join_models(models: Sequence[Model]) -> Model:
    """Join the models of all parts of one fit; what their series share is taken from the first."""
    first = models[0]
    if len(models) == 1:
        return first
    natures = {name: one for model in models for name, one in model.transform.natures.items()}
    networks = dataclasses.replace(
        first.networks,
        ids=tuple(name for model in models for name in model.ids),
        params=jax.tree.map(lambda *leaves: np.concatenate(leaves), *(m.params for m in models)),
        report=pd.concat([model.report for model in models]),
    )
    return dataclasses.replace(
        first,
        networks=networks,
        transform=dataclasses.replace(first.transform, natures=MappingProxyType(natures)),
        **{name: np.concatenate([getattr(m, name) for m in models]) for name in _OF_SERIES},
        skipped=MappingProxyType({n: w for model in models for n, w in model.skipped.items()}),
    )


COMPONENTS = (*CLASSICAL, "linear", "patterns")
"""The components of the combination that are also compared by themselves."""
COMBINATION_COVERAGE = "combination_coverage-80"
"""The column of reports with the share of outcomes in bands of 80 % around the combination."""
SEASONAL_NAIVE = "seasonal_naive"
VOLATILITY = "volatility of a month"
"""What prices are compared with: normal distributions of the volatility of the latest month."""
PARTS_OF_PRICES = (str(Method.COMBINATION), str(Method.OWN), "linear", VOLATILITY)
"""The parts of the bands of prices that are compared, the combination of the next two first."""
_NEARLY_ALL = 0.8  # share of the series for which a forecast must be known to be compared


def beside(name: str) -> str:
    """Return the column with the error of a forecast, relative to that of the last value."""
    return f"{name}_beside_naive"


def crps_of(name: str) -> str:
    """Return the column with the score of a forecast of prices, see :func:`comparison`."""
    return f"crps_{name}"


def comparison(report: pd.DataFrame, made: Mapping[str, Any]) -> pd.DataFrame:
    """Return how well each method forecasts the rows held back, a row per method.

    All rows are about the same series: those with networks of their own if there are any, or a
    sample of them where components of the combination are computed by themselves. A method that
    fewer than four in five of these series have is left out, and so is a series that lacks one of
    the others. Networks learned nothing from these rows; components may have seen the first ones.

    - ``loss``: of prices: the mean CRPS of their logarithms, in percent, over a sample. Of networks
      of other series: the mean negative log likelihood, by which training also stops, so that it
      flatters own networks a little
    - ``error``: the mean absolute error over that of the last value, the median over series
    - ``coverage``: the share of outcomes in the model's bands of 80 %, over a sample of all series
      that it forecasts so; of the combination, in bands calibrated on earlier outcomes
    - ``seconds``: of the training of all networks

    What the fit has not measured is NaN. ``attrs["series"]`` is the number of series.
    ``report``: of a model, a row per series; ``made``: its provenance
    """
    own = report[FORECAST_BY] == Method.OWN
    if crps_of(VOLATILITY) in report:
        return _comparison_of_prices(report, made)
    some = report[own] if own.any() else report
    sampled = some.filter([beside(Method.COMBINATION)]).notna().any(axis=1)
    some = some[sampled] if sampled.any() else some
    first = str(Method.OWN if own.any() else some[FORECAST_BY].mode()[0])
    columns = {str(name): beside(name) for name in (Method.COMBINATION, *COMPONENTS)}
    columns["season before"] = beside(SEASONAL_NAIVE)
    columns[first] = "mae_relative_to_naive"  # perhaps a classical model that forecasts alone
    errors = pd.DataFrame({n: some[of] for n, of in columns.items() if of in some}, some.index)
    errors = errors.loc[:, errors.notna().mean() >= _NEARLY_ALL]
    same = errors.notna().all(axis=1)
    middle, some = errors[same].median(), some[same]
    classical = [name for name in CLASSICAL if name in middle]
    best = middle[classical].idxmin() if classical else None
    middle = middle.drop([name for name in classical if name != best])

    def mean(column: str) -> float:
        return float(some[column].mean()) if column in some else np.nan

    table = pd.DataFrame({"error": middle, "loss": np.nan, "coverage": np.nan, "seconds": np.nan})
    table.loc["last value", "error"] = 1.0
    if str(Method.COMBINATION) in table.index:
        table.loc[str(Method.COMBINATION), "coverage"] = mean(COMBINATION_COVERAGE)
    table.loc[first, "coverage"] = made.get("coverage")
    if own.any():
        table.loc[first, ["loss", "seconds"]] = mean("validation_loss"), made["training_seconds"]
    order = list(dict.fromkeys([first, *map(str, table.index)]))
    table = table.loc[order, ["loss", "error", "coverage", "seconds"]]
    table.attrs["series"] = len(some)
    return table


class _OfPrices(NamedTuple):
    """How a part of the bands of prices forecasts them: nobody beats the error of the last price.

    ``loss``, ``coverage``, ``seconds``: as of :func:`comparison`
    """

    by: str
    loss: float
    coverage: float
    seconds: float


def _comparison_of_prices(report: pd.DataFrame, made: Mapping[str, Any]) -> pd.DataFrame:
    """Return how well the parts of a band forecast, first all together, a row for each."""
    parts = [part for part in PARTS_OF_PRICES if crps_of(part) in report]
    scores = report[[crps_of(part) for part in parts]].dropna()
    rows = [
        _OfPrices(
            by=part,
            loss=scores[crps_of(part)].mean(),
            coverage=made.get("coverage", np.nan) if part == parts[0] else np.nan,
            seconds=made["training_seconds"] if part == Method.OWN else np.nan,
        )
        for part in parts
    ]
    table = pd.DataFrame(rows).set_index("by").rename_axis(None)
    table.attrs["series"] = len(scores)
    return table
