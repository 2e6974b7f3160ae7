"""Fit a model: train the networks of a panel's series, and calibrate their bands."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import NoSeries, UsageError
from forecaster.forecasting.bands.conformal import common_spread
from forecaster.forecasting.fitting.pooled import sample_of
from forecaster.forecasting.fitting.training import train
from forecaster.forecasting.fitting.validating import validated
from forecaster.forecasting.model import Model, Networks
from forecaster.forecasting.networks import OwnNetwork, with_network
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel, Transform, Transformed, behind_market, spacing_of
from forecaster.skipped import Kind, Skipped
from forecaster.swarm.recurrence import products_of

Trainer: TypeAlias = Callable[[Config, Transformed, tuple[str, ...], int], tuple[Networks, float]]
"""From settings, data (series, ...), the series' names and a seed to networks, and the seconds that
the training took."""


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
    series that is too short, never changes or cannot be transformed is left out and named in
    ``skipped``. With ``start="independent"`` the networks of a series depend on its name, its
    values, the config and the seed alone; by default they start from ones that all series train.

    - ``panel``: the series, or a frame with them as :func:`forecaster.load_panel` takes it
    - ``config``: the settings; by default those of :class:`Config`
    - ``seed``: the same seed gives the same networks, bit for bit
    - ``tune``: search learning rate, weight decay and hidden size for each series by its validation
      loss first; the report says what was chosen
    - ``network``: a Flax module of your own in place of the config's ``model``; see
      :mod:`forecaster.forecasting.networks.own` for what it is called with and returns
    - ``checkpoint``: with it an interrupted fit can be resumed; see :class:`swarm.Checkpoint`
    - ``executor``: where the networks train, such as a :class:`forecaster.distributed.Ray`; by
      default in this process
    - ``on_progress``: called from time to time while the networks are trained
    - ``columns``: what a frame's columns are, see :class:`forecaster.ingest.ColumnOptions`

    Raises DataError when no series is left, or a frame cannot be understood; UsageError for a
    ``network`` that cannot be used, and for static covariates where each series is by itself.
    """
    config, network = with_network(config or Config(), network)
    panel = as_panel(panel, **columns)
    check_static(panel, config, tune=tune)
    trainer = functools.partial(
        train, tune=tune, network=network, checkpoint=checkpoint, executor=executor,
        on_progress=on_progress,
    )  # fmt: skip
    return fit_with(trainer, panel, config, seed, tuned=tune, executor=executor)


def check_static(panel: Panel, config: Config, *, tune: bool) -> None:
    """Raise UsageError for static covariates that nothing could be learned from."""
    if panel.static is not None and (config.start != "pooled" or tune):
        raise UsageError(
            "static covariates tell series apart for a network that all of them train; here each "
            "series is by itself. Leave them out, or take start = 'pooled' without a search"
        )


def fit_with(
    trainer: Trainer,
    panel: Panel,
    config: Config,
    seed: int,
    *,
    tuned: bool = False,
    executor: swarm.Executor | None = None,
) -> Model:
    """Fit as :func:`fit` does, with networks that another function trains.

    - ``trainer``: trains the networks of all series; its report may have a column ``why_not``, the
      reason where a series has no network
    - ``panel, config, seed``: as for :func:`fit`
    - ``tuned``: whether the settings were searched; noted in the model's provenance, as is what the
      precision came to
    - ``executor``: where the forecasts over the validation span are made
    """
    config, panel = with_declared(config, panel)
    panel, transform = _prepared(panel.masked(), config, tuned=tuned)
    return fit_part(trainer, panel, transform, config, seed, tuned=tuned, executor=executor).model


def with_declared(config: Config, panel: Panel) -> tuple[Config, Panel]:
    """Both with the market that either declares. Raises UsageError for one that is not there."""
    if config.market is not None:
        return config, panel.with_market(config.market)
    if panel.market is not None:
        return dataclasses.replace(config, market=panel.market.ids[0]), panel
    return config, panel


class Part(NamedTuple):
    """A fitted model, and what other parts of the same fit need of it.

    - ``ids``: all series that were trained
    - ``scores``: normal scores of the outcomes of their forecasts over the validation span
    - ``lost``: those that no worker could train
    """

    model: Model
    ids: tuple[str, ...]
    scores: Float[np.ndarray, "series origin horizon"]
    lost: tuple[str, ...] = ()

    def only(self, ids: Sequence[str]) -> "Part | None":
        """Of some series; None where none of them has a network."""
        wanted = set(ids)
        kept = [name for name in self.model.ids if name in wanted]
        if not kept:
            return None
        rows = [row for row, name in enumerate(self.ids) if name in wanted]
        some = tuple(self.ids[row] for row in rows)
        lost = tuple(name for name in self.lost if name in wanted)
        return Part(self.model.only(kept), some, self.scores[rows], lost)


def fit_part(
    trainer: Trainer,
    panel: Panel,
    transform: Transform,
    config: Config,
    seed: int,
    *,
    steps: int | None = None,
    tuned: bool = False,
    executor: swarm.Executor | None = None,
) -> Part:
    """Fit series that a transform can take, which may be a part of a larger panel.

    - ``transform``: knows these series
    - ``steps``: of the longest history of the larger panel
    - ``trainer, config, seed, tuned, executor``: as for :func:`fit_with`

    The model's spread is that of these series.
    """
    transformed = transform.apply(panel, config.horizon, steps)
    networks, seconds = trainer(config, transformed, panel.ids, seed)
    scores, errors = validated(networks, transform, transformed, panel, executor)
    report = networks.report.assign(**errors)
    report.insert(0, "rows", panel.mask.sum(1))
    spacing = np.array([spacing_of(panel.times[seen]) for seen in panel.mask])
    broken, lost = _broken(report), _lost(report)
    report = report.drop(columns="why_not", errors="ignore")
    kept = [name for name in panel.ids if name not in broken]
    model = Model(
        networks=dataclasses.replace(networks, report=report),
        channels=panel.channels,
        target=panel.target,
        frequency=panel.frequency,
        transform=transform,
        normal_scores=scores.astype(np.float32),
        spread=prior_spread(networks.config, scores[sample_of(panel.ids, transformed.z.shape[1])]),
        fitted_until=panel.times[transformed.positions[:, -1]],
        spacing=spacing,
        skipped=MappingProxyType({**panel.skipped, **broken}),
        provenance={"seed": seed, "training_seconds": seconds, "tuned": tuned}
        | {"products": products_of(networks.config.precision)}
        | {"computed": dict(networks.computed)},
    )
    if not kept:
        raise NoSeries(model.skipped, lost=lost)
    return Part(model.only(kept), panel.ids, scores, lost)


def _prepared(panel: Panel, config: Config, *, tuned: bool) -> tuple[Panel, Transform]:
    """The series that can be learned from, and what networks see of them."""
    transform = Transform.choose(config.transform, panel, config.season)
    panel = usable(panel, config, transform)
    if config.start == "pooled" and not tuned:  # otherwise no series has a part in another's
        sample = sample_of(panel.ids, int(panel.mask.sum(1).max()))
        some = panel.only([panel.ids[row] for row in sample])
        transform = transform.learning_doubt(some, config.horizon)
    return panel, transform


def prior_spread(config: Config, scores: Float[np.ndarray, "series origin horizon"]) -> np.ndarray:
    """What bands start from: the spread of all series' scores where they share anything at all."""
    return common_spread(scores) if config.start == "pooled" else np.ones(config.horizon)


def usable(panel: Panel, config: Config, transform: Transform) -> Panel:
    """The panel without series that the transform cannot take or that are too short."""
    reasons = transform.unusable(panel) | behind_market(panel)
    seasonal = f" + season {transform.season}" if transform.rows_needed() else ""
    needed = config.rows_to_fit + transform.rows_needed()
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < needed:
            why = config.why_rows + seasonal
            reasons[name] = Skipped(Kind.TOO_SHORT, int(rows), needed, detail=why)
    return panel.only([name for name in panel.ids if name not in reasons], reasons)


def _broken(report: pd.DataFrame) -> dict[str, Skipped]:
    """Series whose network cannot be used, with the reason."""
    sound = np.isfinite(report["validation_loss"]) & np.isfinite(report["mae"])
    reasons = report["why_not"] if "why_not" in report else pd.Series("", report.index)
    return {
        str(name): Skipped(Kind.NOT_TRAINED, detail=str(reasons[name]))
        if reasons[name]
        else Skipped(Kind.NOT_FINITE)
        for name in report.index[~sound]
    }


def _lost(report: pd.DataFrame) -> tuple[str, ...]:
    """Series that no worker could train."""
    if "why_not" not in report:
        return ()
    return tuple(map(str, report.index[report["why_not"].astype(bool)]))
