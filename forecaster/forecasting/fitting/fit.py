"""Fit a model: train the networks of a panel's series, and calibrate their bands.

Series that do not fit into memory together are fitted in parts. What the networks of all series
share is then learned first (:func:`learn_common`), from the same sample that a fit in one part
takes; so the parts together equal that fit, bit for bit.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, Unpack

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster import swarm
from forecaster.config import Config, checked_config
from forecaster.errors import NoSeries, UsageError
from forecaster.forecasting.bands.conformal import common_spread
from forecaster.forecasting.fitting.pooled import Pooled, most_sampled, sample_of, train_pooled
from forecaster.forecasting.fitting.training import train
from forecaster.forecasting.fitting.validating import validated
from forecaster.forecasting.model import Model, Networks
from forecaster.forecasting.networks import OwnNetwork, with_network
from forecaster.forecasting.task import param_shapes, series_data, split_of
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel, Transform, Transformed, behind_market, spacing_of
from forecaster.skipped import Kind, Skipped
from forecaster.swarm.recurrence import products_of

Trainer: TypeAlias = Callable[[Config, Transformed, tuple[str, ...], int], tuple[Networks, float]]
"""Trains networks, given the settings, data (series, ...), the series' names and a seed; returns
them, and the seconds that it took."""


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
    series that is too short, never changes or cannot be transformed is skipped and named in
    ``skipped``. With ``start="independent"`` the networks of a series depend only on its name, its
    values, the config and the seed; by default they start from networks trained on all series.

    - ``panel``: the series, or a frame that :func:`forecaster.load_panel` accepts
    - ``config``: the settings; by default those of :class:`Config`
    - ``seed``: the same seed gives the same networks, bit for bit
    - ``tune``: first search the learning rate, weight decay and hidden size of each series by its
      validation loss; the report has the choices
    - ``network``: a Flax module of your own in place of the config's ``model``; its interface is
      described in :mod:`forecaster.forecasting.networks.own`
    - ``checkpoint``: allows an interrupted fit to be resumed; see :class:`swarm.Checkpoint`
    - ``executor``: where the networks train, such as a :class:`forecaster.distributed.Ray`; by
      default in this process
    - ``on_progress``: called from time to time while the networks are trained
    - ``columns``: the meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`

    Raises DataError when no series is left, or a frame cannot be understood; UsageError for a
    ``network`` that cannot be used, and for static covariates where no network is trained on
    several series.
    """
    config, network = with_network(checked_config(config), network)
    panel = as_panel(panel, **columns)
    check_static(panel, config, tune=tune)
    config, panel = with_declared(config, panel)
    return fit_part(
        panel, config, seed, tune=tune, network=network, checkpoint=checkpoint, executor=executor,
        on_progress=on_progress,
    ).model  # fmt: skip


def check_static(panel: Panel, config: Config, *, tune: bool) -> None:
    """Raise UsageError for static covariates where no network learns from several series."""
    if panel.static is not None and (config.start != "pooled" or tune):
        raise UsageError(
            "static covariates tell series apart for a network that is trained on all of them; "
            "here each series has its own. Leave them out, or take start = 'pooled' without a "
            "search"
        )


def fit_with(trainer: Trainer, panel: Panel, config: Config, seed: int) -> Model:
    """Fit as :func:`fit` does, with networks that another function trains.

    ``trainer``: trains the networks of all series; its report may have a column ``why_not``, the
    reason why a series has no network. Others as for :func:`fit`.
    """
    config, panel = with_declared(config, panel)
    panel, common = _whole(panel.masked(), config)
    return _fitted(trainer, panel, common, config, seed).model


def with_declared(config: Config, panel: Panel) -> tuple[Config, Panel]:
    """Return both with the market that either of them declares.

    Raises UsageError for a market that is not in the panel.
    """
    if config.market is not None:
        return config, panel.with_market(config.market)
    if panel.market is not None:
        return dataclasses.replace(config, market=panel.market.ids[0]), panel
    return config, panel


class Common(NamedTuple):
    """What the networks of all series of a fit share.

    - ``sample``: the series that it is learned from
    - ``steps``: rows of the longest history
    - ``transform``: makes the inputs of networks; in a fit of several parts it does not know single
      series yet
    - ``pooled``: the networks that each series' networks start from; None where they start from
      random weights, or where the part itself trains them
    """

    sample: tuple[str, ...]
    steps: int
    transform: Transform
    pooled: Pooled | None = None


class Part(NamedTuple):
    """The fitted model of some series, and the data that the whole fit needs from it.

    - ``ids``: all series that were trained
    - ``scores``: normal scores of the outcomes of their forecasts over the validation span
    - ``sample``: the series of the whole fit whose scores set the initial width of all bands
    - ``lost``: series that no worker could train
    """

    model: Model
    ids: tuple[str, ...]
    scores: Float[np.ndarray, "series origin horizon"]
    sample: tuple[str, ...]
    lost: tuple[str, ...] = ()

    def only(self, ids: Sequence[str]) -> "Part | None":
        """Return the part of these series; None where none of them has a network."""
        wanted = set(ids)
        if wanted.issuperset(self.ids):
            return self
        kept = [name for name in self.model.ids if name in wanted]
        if not kept:
            return None
        rows = [row for row, name in enumerate(self.ids) if name in wanted]
        some = tuple(self.ids[row] for row in rows)
        lost = tuple(name for name in self.lost if name in wanted)
        return Part(self.model.only(kept), some, self.scores[rows], self.sample, lost)

    @property
    def sampled_scores(self) -> Float[np.ndarray, "sampled origin horizon"]:
        """The scores of the part's series that are in the sample."""
        chosen = set(self.sample)
        return self.scores[[row for row, name in enumerate(self.ids) if name in chosen]]


def fit_part(
    panel: Panel,
    config: Config,
    seed: int,
    common: Common | None = None,
    *,
    tune: bool = False,
    network: OwnNetwork | None = None,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Part:
    """Fit series that are all of a fit, or with ``common`` a part of a larger one.

    - ``panel``: the series; of a part of a larger fit, only those that can be learned from
    - ``common``: of :func:`learn_common`; None: these series are all, and what they share is
      learned from them
    - others as for :func:`fit`

    The model's spread comes from these series; :func:`spread_of` joins several parts. Raises
    NoSeries where no network of them can be used.
    """
    config, network = with_network(config, network)
    if common is None:
        panel, common = _whole(panel.masked(), config, tuned=tune)
    else:
        common = common._replace(transform=common.transform.with_series(panel, config.season))
    trainer = functools.partial(
        train, tune=tune, network=network, pooled=common.pooled, checkpoint=checkpoint,
        executor=executor, on_progress=on_progress,
    )  # fmt: skip
    return _fitted(trainer, panel, common, config, seed, tuned=tune, executor=executor)


def _whole(panel: Panel, config: Config, *, tuned: bool = False) -> tuple[Panel, Common]:
    """Return the series that can be learned from, and what they share except pooled networks."""
    transform = Transform.choose(config.transform, panel, config.season)
    panel = usable(panel, config, transform)
    transform = transform.with_static(panel)
    steps = int(panel.mask.sum(1).max())
    sample = sampled(panel.ids, steps)
    if config.start == "pooled" and not tuned:  # otherwise no series influences another
        transform = transform.learned_from(panel.only(sample), config.horizon)
    return panel, Common(tuple(sample), steps, transform)


def _fitted(
    trainer: Trainer,
    panel: Panel,
    common: Common,
    config: Config,
    seed: int,
    *,
    tuned: bool = False,
    executor: swarm.Executor | None = None,
) -> Part:
    """Train the networks of series that the common transform can take, and judge them."""
    rows = panel.mask.sum(1)
    # Networks learn from errors of classical models that have not seen the outcomes.
    transform = common.transform.with_experts(panel, rows // 2)
    transformed = transform.apply(panel, config.horizon, common.steps)
    networks, seconds = trainer(config, transformed, panel.ids, seed)
    scores, errors = validated(networks, transform, transformed, panel, executor)
    report = networks.report.assign(**errors)
    report.insert(0, "rows", rows)
    spacing = np.array([spacing_of(panel.times[seen]) for seen in panel.mask])
    broken, lost = _broken(report), _lost(report)
    report = report.drop(columns="why_not", errors="ignore")
    kept = [name for name in panel.ids if name not in broken]
    model = Model(
        networks=dataclasses.replace(networks, report=report),
        channels=panel.channels,
        target=panel.target,
        frequency=panel.frequency,
        transform=transform.with_experts(panel),
        normal_scores=scores.astype(np.float32),
        spread=np.ones(config.horizon),
        fitted_until=panel.times[transformed.positions[:, -1]],
        spacing=spacing,
        skipped=MappingProxyType({**panel.skipped, **broken}),
        provenance={"seed": seed, "training_seconds": seconds, "tuned": tuned}
        | {"products": products_of(networks.config.precision)}
        | {"computed": dict(networks.computed)},
    )
    if not kept:
        raise NoSeries(model.skipped, lost=lost)
    part = Part(model, panel.ids, scores, common.sample, lost)
    spread = spread_of(networks.config, [part.sampled_scores])
    return part._replace(model=dataclasses.replace(model.only(kept), spread=spread))


def spread_of(
    config: Config,
    scores: Sequence[Float[np.ndarray, "sampled origin horizon"]],
    *,
    tune: bool = False,
) -> Float[np.ndarray, " horizon"]:
    """Return the initial width of all series' bands by horizon.

    - ``scores``: of the series of each part that are in the sample, in the order of the fit
    - ``tune``: whether settings were searched, by networks that share nothing
    """
    known = [some for some in scores if len(some)]
    if config.start != "pooled" or tune or not known:
        return np.ones(config.horizon)
    return common_spread(np.concatenate(known))


def learn_common(
    sample: Panel,
    config: Config,
    seed: int,
    steps: int,
    *,
    tune: bool = False,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Common:
    """Learn what the networks of all series share, for a fit of several parts.

    - ``sample``: the series of :func:`sampled`
    - ``steps``: rows of the longest history of all series
    - others as for :func:`fit`
    """
    config, network = with_network(config, None)
    transform = Transform.choose(config.transform, sample, config.season).with_static(sample)
    bare = dataclasses.replace(transform, natures={})
    if config.start != "pooled" or tune:
        return Common(sample.ids, steps, bare)
    transform = transform.learned_from(sample, config.horizon)
    held_back = sample.mask.sum(1) // 2
    transformed = transform.with_experts(sample, held_back).apply(sample, config.horizon, steps)
    pooled = train_pooled(
        config, split_of(config, steps), transformed.features.shape[-1], network,
        series_data(config, transformed), seed, on_progress=on_progress,
    )  # fmt: skip
    return Common(sample.ids, steps, dataclasses.replace(transform, natures={}), pooled)


def sampled(ids: Sequence[str], steps: int) -> list[str]:
    """Return the series that stand for all of these in what they share.

    ``ids``: of all series that can be learned from; ``steps``: rows of the longest.
    """
    return [ids[int(row)] for row in sample_of(ids, steps)]


def usable_rows(panel: Panel, config: Config) -> tuple[dict[str, int], dict[str, Skipped]]:
    """Return the rows of each series that can be learned from, and why the others cannot."""
    try:
        kept = usable(panel, config, Transform.choose(config.transform, panel, config.season))
    except NoSeries as error:
        return {}, error.skipped
    return dict(zip(kept.ids, map(int, kept.mask.sum(1)), strict=True)), dict(kept.skipped)


def usable(panel: Panel, config: Config, transform: Transform) -> Panel:
    """Return the panel without series that are too short or that the transform cannot take."""
    reasons = transform.unusable(panel) | behind_market(panel)
    seasonal = f" + season {transform.season}" if transform.rows_needed() else ""
    needed = config.rows_to_fit + transform.rows_needed()
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < needed:
            why = config.why_rows + seasonal
            reasons[name] = Skipped(Kind.TOO_SHORT, int(rows), needed, detail=why)
    return panel.only([name for name in panel.ids if name not in reasons], reasons)


def _broken(report: pd.DataFrame) -> dict[str, Skipped]:
    """Return the series whose network cannot be used, with the reason."""
    sound = np.isfinite(report["validation_loss"]) & np.isfinite(report["mae"])
    reasons = report["why_not"] if "why_not" in report else pd.Series("", report.index)
    return {
        str(name): Skipped(Kind.NOT_TRAINED, detail=str(reasons[name]))
        if reasons[name]
        else Skipped(Kind.NOT_FINITE)
        for name in report.index[~sound]
    }


def _lost(report: pd.DataFrame) -> tuple[str, ...]:
    """Return the series that no worker could train."""
    if "why_not" not in report:
        return ()
    return tuple(map(str, report.index[report["why_not"].astype(bool)]))


def bytes_of_series(config: Config, steps: int, channels: int) -> int:
    """Estimate the bytes that a series takes while it is trained; measured, with a margin.

    ``steps``: rows of the longest history; ``channels``: number of channels of the panel.
    """
    config, network = with_network(config, None)
    shapes = jax.tree.leaves(param_shapes(config, _features(config), network))
    weights = sum(math.prod(leaf.shape) for leaf in shapes) * config.members
    validated = config.longest_validation * config.horizon * (config.members + 4) * 8
    return steps * _bytes_of_step(config, channels) + 64 * weights + 4 * validated


def bytes_of_sample(config: Config, series: int, steps: int, channels: int) -> int:
    """Estimate the bytes that :func:`learn_common` takes; measured, with a margin.

    ``series``: number of all series; others as for :func:`bytes_of_series`.
    """
    sampled = min(series, most_sampled(steps))
    each = _bytes_of_step(config, channels) if config.start == "pooled" else 48 * channels
    return 2 * sampled * steps * each // 3


def _features(config: Config) -> int:
    kinds = ("log_return", "combined") if config.transform == "auto" else (config.transform,)
    kinds = ("log_return",) if config.market is not None else kinds
    made = (Transform(kind, market=config.market) for kind in kinds)
    return max(transform.feature_count(config.horizon) for transform in made)


def _bytes_of_step(config: Config, channels: int) -> int:
    """Return the bytes for one step of a series: panel, features, targets and temporary arrays."""
    return 24 * channels + 28 * _features(config) + 56 * config.horizon + 120
