"""Fit a model: train the networks of a panel's series, and calibrate their bands.

Series that do not fit into memory together are fitted in parts. What the networks of all series
share is then learned first (``common.py``), from the same sample that a fit in one part takes; so
the parts together equal that fit, bit for bit.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from forecaster import swarm
from forecaster.errors import (
    ForecasterWarning,
    Kind,
    NoSeries,
    Skipped,
    UsageError,
    check_callable,
    check_flag,
    check_seed,
    check_type,
    listed,
    wrong_argument,
)
from forecaster.forecasting.bands import Widths, common_spread, common_tails
from forecaster.forecasting.config import Config, checked_config
from forecaster.forecasting.fitting.common import Common, Sampling, shared
from forecaster.forecasting.fitting.training import train
from forecaster.forecasting.fitting.validating import inside_bands, validated
from forecaster.forecasting.methods import (
    FORECAST_BY,
    Method,
    growth_of,
    has_few_rows,
    methods_of,
    trains,
    transform_of,
    usable,
    without_networks,
)
from forecaster.forecasting.model import Model, Networks
from forecaster.forecasting.network_task import validation_of
from forecaster.forecasting.networks import OwnNetwork, with_network
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import (
    Panel,
    Transform,
    findings_of,
    held_back_rows,
    say_findings,
    spacing_of,
    with_peers,
)
from forecaster.swarm.recurrence import products_of


def check_training(
    seed: int,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> None:
    """Raise UsageError for an argument of :func:`fit` that is of another type."""
    check_seed(seed)
    expected = "a forecaster.swarm.Checkpoint or None"
    check_type("checkpoint", checkpoint, swarm.Checkpoint | None, expected)
    runs = callable(getattr(executor, "run", None)) and hasattr(executor, "is_local")
    if executor is not None and not runs:
        expected = "an executor, such as forecaster.distributed.Ray(), or None for this process"
        raise wrong_argument("executor", executor, expected)
    check_callable("on_progress", on_progress)


def check_search(config: Config, *, tune: bool) -> None:
    """Raise UsageError for a search without networks, and for anything but True and False."""
    check_flag("tune", tune)
    if tune and config.is_classical:
        raise UsageError(
            f"the model {config.model} has no settings to search: its parameters are always "
            "estimated. Leave out the search (tune)"
        )


def check_static(panel: Panel, config: Config, *, tune: bool) -> None:
    """Raise UsageError for static covariates where no network learns from several series."""
    check_covariates(panel, config)
    if panel.static is not None and (config.start != "pooled" or tune):
        raise UsageError(
            "static covariates tell series apart for a network that is trained on all of them; "
            "here each series has its own. Leave them out, or take start = 'pooled' without a "
            "search"
        )


def check_covariates(panel: Panel, config: Config) -> None:
    """Raise UsageError for covariates that a classical model does not see."""
    if config.is_classical and (panel.static is not None or panel.future is not None):
        raise UsageError(
            f"the model {config.model} sees nothing but its own series, and no covariates. Leave "
            "them out, or take model = 'auto'"
        )


def fit(
    panel: Panel | Table,
    config: Config | None = None,
    seed: int = 0,
    *,
    tune: bool = False,
    network: OwnNetwork | None = None,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
    **columns: Unpack[ColumnOptions],
) -> Model:
    """Train the networks of every series of the panel, all at the same time.

    Rows that are known at the panel's end to look wrong are left out, see :meth:`Panel.masked`. A
    price series that is too short, never changes or cannot be transformed is skipped and named in
    ``skipped``. Every other series is forecast; the report's column ``forecast_by`` says by what, a
    :class:`~forecaster.forecasting.Method`. With ``start="independent"`` the networks of a series
    depend only on its name, its values, the config and the seed; by default they start from
    networks trained on all series.

    - ``panel``: the series, or a frame that :func:`forecaster.load_panel` accepts
    - ``config``: the settings; by default those of :class:`Config`
    - ``seed``: the same seed gives the same networks, bit for bit
    - ``tune``: first search the learning rate, weight decay and hidden size of each series by its
      validation loss; the report has the choices
    - ``network``: a Flax module of your own in place of the config's ``model``; its interface is
      described in :mod:`forecaster.forecasting.flax_networks`
    - ``checkpoint``: allows an interrupted fit to be resumed; see :class:`swarm.Checkpoint`
    - ``executor``: where the networks train, such as a :class:`forecaster.distributed.Ray`; by
      default in this process
    - ``on_progress``: called from time to time while the networks are trained
    - ``columns``: the meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`

    Warns where the forecasts of held-back rows are worse than simple ones.

    Raises DataError when no series is left, or a frame cannot be understood; UsageError for a
    ``network`` that cannot be used, and for static covariates where no network is trained on
    several series.
    """
    check_training(seed, checkpoint, executor, on_progress)
    config, network = with_network(checked_config(config), network)
    panel = as_panel(panel, **columns)
    check_search(config, tune=tune)
    check_static(panel, config, tune=tune)
    config, panel = with_declared(config, panel)
    settled = settled_by_rows(config, panel.target, changing_rows(panel.masked()))
    if settled is not config:
        config, panel = settled, dataclasses.replace(panel, market=None)
    say_findings(findings_of(panel), len(panel.ids))
    model = fit_part(
        panel, config, seed, tune=tune, network=network, checkpoint=checkpoint,
        executor=executor, on_progress=on_progress,
    ).model  # fmt: skip
    if worse := worse_than_simple(model.report):
        warnings.warn(worse, ForecasterWarning, stacklevel=2)
    return model


def with_declared(config: Config, panel: Panel) -> tuple[Config, Panel]:
    """Return both with the market that either of them declares.

    Raises UsageError for a market that is not in the panel, and for covariates that a classical
    model does not see.
    """
    check_covariates(panel, config)
    if config.market is not None:
        return config, panel.with_market(config.market)
    if panel.market is not None:
        return dataclasses.replace(config, market=panel.market.ids), panel
    return config, panel


def changing_rows(panel: Panel) -> int:
    """Return the rows of the longest series that changes, or of the longest if none changes."""
    rows, still = panel.mask.sum(1), panel.constant()
    return int((rows if still.all() else rows[~still]).max(initial=0))


def settled_by_rows(config: Config, target: str, most: int, when: str = "") -> Config:
    """Return the settings, changed if no price series is long enough for networks.

    The series are then forecast by the last value, without a market, and a warning says so.

    - ``most``: rows of the longest series
    - ``when``: for the warning: up to when these rows are counted
    """
    made = without_networks(config, target, most)
    if made is config:
        return config
    more = "" if config.market is None else f"; the market {listed(config.indices)} is left out"
    warnings.warn(
        f"no series has enough rows for networks: the longest has {most}{when}, and "
        f"{config.rows_to_fit} are needed ({config.why_rows}). Each is forecast by its last value, "
        f"with a band from its own changes and those of usual stocks{more}",
        ForecasterWarning,
        stacklevel=3,
    )
    return made


class Scores(NamedTuple):
    """Normal scores of outcomes under forecasts by networks, and under forecasts without one.

    ``counts``: those of series of counts, which are forecast without networks; the others are not
    counts
    """

    networks: Float[np.ndarray, "series origin horizon"]
    without: Float[np.ndarray, "series origin horizon"]
    counts: Float[np.ndarray, "series origin horizon"]

    @staticmethod
    def by_kind(
        scores: Float[np.ndarray, "series origin horizon"],
        networked: Bool[np.ndarray, " series"],
        counted: Bool[np.ndarray, " series"],
        sampled: Bool[np.ndarray, " series"],
    ) -> "Scores":
        """Return the scores of sampled series, by what forecasts them."""
        kinds = networked, ~networked & ~counted, ~networked & counted
        return Scores(*(scores[sampled & kind] for kind in kinds))


class Part(NamedTuple):
    """The fitted model of some series, and the data that the whole fit needs from it.

    - ``lost``: series that no worker could train
    - ``sampled_scores``: scores of the outcomes in the validation span, of those series that are in
      the sample of the whole fit, which sets the initial width of all bands
    """

    model: Model
    lost: tuple[str, ...]
    sampled_scores: Scores


def fit_part(
    panel: Panel,
    config: Config,
    seed: int,
    common: Common | None = None,
    *,
    tune: bool = False,
    network: OwnNetwork | None = None,
    before: Networks | None = None,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Part:
    """Fit series that are all of a fit, or with ``common`` a part of a larger one.

    - ``panel``: the series; of a part of a larger fit, only those that can be learned from
    - ``common``: from :func:`learn_common`; None if these are all series of the fit: what they
      share is then learned from them
    - ``before``: the networks of these series that training begins with
    - others as for :func:`fit`

    The model's widths come from these series; :func:`widths_of` joins several parts. Raises
    NoSeries where no network of them can be used.
    """
    config, network = with_network(config, network)
    if common is None:
        panel, common = _whole(panel.masked(), config, tuned=tune)
    else:
        common = common._replace(transform=common.transform.with_series(panel, config.season))
    rows, horizon, seconds = panel.mask.sum(1), config.horizon, 0.0
    own = trains(panel, config, common.transform) & common.sampling.networks
    blended = common.transform.name == "combined"
    unseen = held_back_rows(rows, horizon) if blended else rows // 2
    early = common.transform.with_components(panel, horizon, unseen)
    transformed = early.apply(panel, horizon, common.sampling.steps)
    if own.any() and common.pooled is None and config.start == "pooled" and not tune:
        common = common.with_pooled(config, network, transformed, panel, own, seed, on_progress)
        assert common.pooled is not None
        seconds = common.pooled.seconds
        early = early.with_learned(common_volatility=common.transform.learned.common_volatility)
        transformed = transformed.beside_networks(early.learned.common_volatility)
    final = early.with_components(panel, horizon)
    some = transformed if own.all() else transformed.only(np.flatnonzero(own))
    named = tuple(name for name, trained in zip(panel.ids, own, strict=True) if trained)
    networks, more = train(
        config, some, named, seed, tune=tune, network=network, pooled=common.pooled,
        before=before, checkpoint=checkpoint, executor=executor, on_progress=on_progress,
    )  # fmt: skip
    serves = networks.start is not None
    networks = networks.among(panel.ids, methods_of(panel, config, final, own, common=serves))
    held_back = np.where(own, validation_of(config, rows), unseen)
    networks, scores = validated(networks, early, transformed, panel, held_back)
    sampled = np.isin(panel.ids, common.sampling.weighed)
    sampled_scores = Scores.by_kind(scores, networks.networked, final.counted(panel.ids), sampled)
    widths = widths_of(config, [sampled_scores], tune=tune)
    provenance = {
        "seed": seed, "training_seconds": seconds + more, "tuned": tune,
        "coverage": coverage_of([sampled_scores], widths),
    }  # fmt: skip
    model = _model(panel, networks, final, scores, widths, provenance)
    return Part(*_without_broken(model), sampled_scores)


def _whole(panel: Panel, config: Config, *, tuned: bool = False) -> tuple[Panel, Common]:
    """Return the series that can be learned from, and what they share except pooled networks."""
    transform = transform_of(config, panel)
    panel = usable(with_peers(panel), config, transform)
    own = trains(panel, config, transform)
    if has_few_rows(panel, config, transform, own):
        own = np.zeros_like(own)
    trained = [name for name, one in zip(panel.ids, own, strict=True) if one]
    if trained:  # covariates of others must not change what networks see
        transform = transform.with_static(panel.only(trained))
    sampling = Sampling.draw(config, panel.ids, trained, int(panel.mask.sum(1).max()))
    common = shared(transform, panel, config, sampling, tuned=tuned)
    if common.transform.natures_are_alike:  # also beyond the sample
        common = common._replace(transform=common.transform.with_series(panel, config.season))
    return panel, common


def _model(
    panel: Panel,
    networks: Networks,
    transform: Transform,
    scores: Float[np.ndarray, "series origin horizon"],
    widths: Widths,
    provenance: Mapping[str, Any],
) -> Model:
    """Return the model of all series of a panel."""
    networks.report.insert(0, "rows", panel.mask.sum(1))
    spacing = np.array(panel.of_times(spacing_of))
    known = spacing[np.isfinite(spacing)]  # not that of a series of one row
    usual = float(np.percentile(known, 50, method="lower")) if len(known) else 1.0
    latest = len(panel.times) - 1 - panel.mask[:, ::-1].argmax(1)
    return Model(
        networks=networks,
        channels=panel.channels,
        target=panel.target,
        frequency=panel.frequency,
        transform=transform,
        normal_scores=scores.astype(np.float32),
        widths=widths,
        fitted_until=panel.times[latest],
        growth=growth_of(networks.config, panel),
        spacing=np.where(np.isfinite(spacing), spacing, usual),
        skipped=panel.skipped,
        provenance={
            **provenance,
            "products": products_of(networks.config.precision),
            "computed": dict(networks.computed),
        },
    )


def _without_broken(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Return the model without series whose networks or forecasts are broken.

    Also return those that no worker could train. Raises NoSeries where no series is left.
    """
    report, said = model.report, model.report.pop("why_not").fillna("")
    lost = {str(name): str(reason) for name, reason in said.items() if reason}
    sound = np.isfinite(report["validation_loss"]) & np.isfinite(report["mae"])
    sound |= report[FORECAST_BY] != Method.OWN  # their forecasts come from no network of their own
    broken = {
        name: Skipped(Kind.NOT_TRAINED, detail=lost[name])
        if name in lost
        else Skipped(Kind.NOT_FINITE)
        for name in map(str, report.index[~sound])
    }
    skipped = MappingProxyType({**model.skipped, **broken})
    kept = [name for name in model.ids if name not in broken]
    if not kept:
        raise NoSeries(skipped, lost=tuple(lost))
    return dataclasses.replace(model.only(kept), skipped=skipped), tuple(lost)


_HUGE = 11  # multiple from which per cents say nothing: of an error of nearly zero
_WORSE = 1.02  # multiple of a simple forecast's error above which a fit gets a warning


def worse_than_simple(report: pd.DataFrame) -> str | None:
    """Return a warning if forecasts are worse than a simple one, in the median over series.

    ``report``: of a model, with the errors on the rows held back relative to simple forecasts
    """
    rivals = {
        "'unchanged'": report["mae_relative_to_naive"],
        "the season before": report["mae_relative_to_seasonal_naive"],
    }
    medians = {name: ratio.median() for name, ratio in rivals.items() if ratio.notna().any()}
    if not medians:
        return None
    name = max(medians, key=medians.__getitem__)
    ratio = medians[name]
    if not ratio > _WORSE:
        return None
    worse = f"{ratio - 1:.0%} worse than" if ratio < _HUGE else "far worse than"
    return (
        f"These forecasts are {worse} {name}: use that instead, or try another "
        "--transform (difference; in Python transform=) or --season, more rows, or a "
        "shorter --horizon."
    )


def widths_of(config: Config, scores: Sequence[Scores], *, tune: bool = False) -> Widths:
    """Return the width and the tails that all bands start from.

    - ``scores``: by part, the scores of its series that are in the sample, in the order of the fit
    - ``tune``: whether settings were searched, by networks that share nothing
    """
    horizon = config.horizon
    if config.start != "pooled" or tune:
        return Widths.unit(horizon)

    def joined(parts: Sequence[np.ndarray]) -> Float[np.ndarray, "series origin horizon"]:
        return np.concatenate([some for some in parts if len(some)] or [np.zeros((0, 1, horizon))])

    networks, others, counts = map(joined, zip(*scores, strict=True))
    without = common_spread(joined([others, counts]))
    return Widths(common_spread(networks), without, common_tails(others, without))


def coverage_of(scores: Sequence[Scores], widths: Widths) -> float | None:
    """Return the share of sampled outcomes in bands of 80 %; None if there are none.

    ``scores``: as for :func:`widths_of`
    """
    inside = [
        inside_bands(own, widths.networks if kind == "networks" else widths.without, widths.tails,
             tailed=kind == "without")
        for part in scores
        for kind, own in part._asdict().items() if len(own)
    ]  # fmt: skip
    known = np.concatenate([one[np.isfinite(one)] for one in inside] or [np.zeros(0)])
    return float(known.mean()) if len(known) else None
