"""A fit in parts: series that do not fit into memory together are trained some after the others.

What all series share is learned first, from the sample that a fit in one piece takes, too (see
:mod:`forecaster.forecasting.fitting.pooled`). So the parts together are that fit, bit for bit.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import NoSeries
from forecaster.forecasting.bands.conformal import common_spread
from forecaster.forecasting.fitting.fit import Part, fit_part, usable
from forecaster.forecasting.fitting.pooled import Pooled, most_sampled, sample_of, train_pooled
from forecaster.forecasting.fitting.training import train
from forecaster.forecasting.networks import with_network
from forecaster.forecasting.task import param_shapes, series_data, split_of
from forecaster.series import Panel, Transform
from forecaster.skipped import Skipped


class Common(NamedTuple):
    """What the networks of all series share.

    - ``sample``: the series that it was learned from
    - ``steps``: of the longest history
    - ``transform``: without what it knows of single series
    - ``pooled``: what networks start from; None where each starts from its own
    """

    sample: tuple[str, ...]
    steps: int
    transform: Transform
    pooled: Pooled | None


def usable_rows(panel: Panel, config: Config) -> tuple[dict[str, int], dict[str, Skipped]]:
    """How many rows each series has that can be learned from, and the reason for each other."""
    try:
        kept = usable(panel, config, Transform.choose(config.transform, panel, config.season))
    except NoSeries as error:
        return {}, error.skipped
    return dict(zip(kept.ids, map(int, kept.mask.sum(1)), strict=True)), dict(kept.skipped)


def sampled(ids: Sequence[str], steps: int) -> list[str]:
    """The series, among all that can be learned from, that what they share is learned from."""
    return [ids[int(row)] for row in sample_of(ids, steps)]


def learn_common(
    sample: Panel,
    config: Config,
    seed: int,
    steps: int,
    *,
    tune: bool = False,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Common:
    """Learn what the networks of all series share.

    - ``sample``: the series of :func:`sampled`
    - ``steps``: of the longest history of all
    - others as for :func:`forecaster.forecasting.fit`
    """
    config, network = with_network(config, None)
    transform = Transform.choose(config.transform, sample, config.season)
    bare = dataclasses.replace(transform, natures={})
    if config.start != "pooled" or tune:
        return Common(sample.ids, steps, bare, None)
    transform = transform.learning_doubt(sample, config.horizon)
    transformed = transform.apply(sample, config.horizon, steps)
    pooled = train_pooled(
        config, split_of(config, steps), transformed.features.shape[-1], network,
        series_data(config, transformed), seed, on_progress=on_progress,
    )  # fmt: skip
    return Common(sample.ids, steps, dataclasses.replace(bare, doubt=transform.doubt), pooled)


def fit_in_part(
    panel: Panel,
    common: Common,
    config: Config,
    seed: int,
    *,
    tune: bool = False,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Part:
    """Fit some of the series; the model's spread is theirs alone, see :func:`spread_of`.

    - ``panel``: series that can be learned from
    - ``common``: of :func:`learn_common`
    - others as for :func:`forecaster.forecasting.fit`

    Raises NoSeries where no network of them can be used.
    """
    config, network = with_network(config, None)
    transform = common.transform.with_series(panel, config.season)
    trainer = functools.partial(
        train, tune=tune, network=network, pooled=common.pooled,
        checkpoint=checkpoint, executor=executor, on_progress=on_progress,
    )  # fmt: skip
    return fit_part(
        trainer, panel, transform, config, seed,
        steps=common.steps, tuned=tune, executor=executor,
    )  # fmt: skip


def spread_of(
    config: Config,
    sample: Sequence[str],
    scores: Sequence[tuple[Sequence[str], np.ndarray]],
    *,
    tune: bool = False,
) -> np.ndarray:
    """What bands start from, by horizon: the spread of the sample's scores.

    - ``scores``: of some series each, their names and scores (series, origin, horizon)
    - ``tune``: whether each series' settings were searched, by networks that share nothing
    """
    if config.start != "pooled" or tune:
        return np.ones(config.horizon)
    by_name = {name: row for names, rows in scores for name, row in zip(names, rows, strict=True)}
    known = [by_name[name] for name in sample if name in by_name]
    return common_spread(np.stack(known)) if known else np.ones(config.horizon)


def bytes_of_series(config: Config, steps: int, channels: int) -> int:
    """About how much memory a series takes while it is trained; measured, with a margin.

    ``steps``: of the longest history; ``channels``: of the panel.
    """
    config, network = with_network(config, None)
    shapes = jax.tree.leaves(param_shapes(config, _features(config), network))
    weights = sum(math.prod(leaf.shape) for leaf in shapes) * config.members
    validated = config.longest_validation * config.horizon * (config.members + 4) * 8
    return steps * _bytes_of_step(config, channels) + 64 * weights + 4 * validated


def bytes_of_sample(config: Config, series: int, steps: int, channels: int) -> int:
    """About how much memory it takes to learn what so many series share; measured, with a margin.

    ``series``: of all; others as for :func:`bytes_of_series`.
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
    """Of a series' panel, features and targets, and what is made on the way to them."""
    return 24 * channels + 28 * _features(config) + 56 * config.horizon + 120
