"""Learn what the networks of all series of a fit share, from a sample of the series.

The memory that this takes, and the training of each series, is estimated beside it.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from forecaster import swarm
from forecaster.forecasting.config import Config
from forecaster.forecasting.fitting.training import Pooled, train_pooled
from forecaster.forecasting.fitting.validating import with_scale_weights
from forecaster.forecasting.methods import transform_of, worth_networks
from forecaster.forecasting.network_task import validation_of
from forecaster.forecasting.networks import OwnNetwork, param_shapes, with_network
from forecaster.forecasting.windows import padded_steps
from forecaster.series import (
    Panel,
    Transform,
    Transformed,
    held_back_rows,
    sampled_names,
    transform_class,
)

MOST_SERIES = 1_000
MOST_ROWS = 10_000_000  # maximum rows of a sample together, unless it has fewer than _ENOUGH series
_ENOUGH = 30  # series


def sample_of(ids: Sequence[str], steps: int) -> Int[np.ndarray, " sampled"]:
    """Return the positions of the sampled series in ``ids``, in order; of all if there are few.

    The sample depends only on the names. ``steps``: rows of the longest history.
    """
    return sampled_names(ids, most_sampled(steps))


def most_sampled(steps: int) -> int:
    """Return the largest size of a sample if the longest history has ``steps`` rows."""
    return min(MOST_SERIES, max(_ENOUGH, MOST_ROWS // max(1, steps)))


class Sampling(NamedTuple):
    """The samples from which a fit learns what all of its series share.

    - ``ids``: all sampled series, in the order of the fit
    - ``weighed``: the series that weights and widths are learned from
    - ``trained``: the series that the common networks are trained on
    - ``steps``: steps that all histories are padded to
    - ``networks``: if True, series that are long enough have networks, and a common network
      forecasts the others; if False, the combination forecasts all. In an update: which of its
      series may have networks
    """

    ids: tuple[str, ...]
    weighed: tuple[str, ...]
    trained: tuple[str, ...]
    steps: int
    networks: bool | Bool[np.ndarray, " series"]

    @staticmethod
    def draw(config: Config, ids: Sequence[str], trained: Sequence[str], steps: int) -> "Sampling":
        """Draw the sample.

        - ``config``: the config of the fit
        - ``ids``: all series of the fit, those that networks are ``trained`` on among them
        - ``steps``: rows of the longest
        """
        networks = worth_networks(config, len(trained), len(ids))
        weighed, own = (
            tuple(some[int(row)] for row in sample_of(some, steps))
            for some in (ids, trained if networks else ())
        )
        either = {*weighed, *own}
        return Sampling(
            tuple(name for name in ids if name in either), weighed, own, padded_steps(steps),
            networks,
        )  # fmt: skip


class Common(NamedTuple):
    """What the networks of all series of a fit share.

    - ``sampling``: the series that it is learned from
    - ``transform``: makes the inputs of networks; in a fit of several parts it does not know single
      series yet
    - ``pooled``: the networks that each series' networks start from; None where they start from
      random weights, or are not trained yet
    """

    sampling: Sampling
    transform: Transform
    pooled: Pooled | None = None

    def with_pooled(
        self,
        config: Config,
        network: OwnNetwork | None,
        transformed: Transformed,
        panel: Panel,
        own: Bool[np.ndarray, " series"],
        seed: int,
        on_progress: Callable[[swarm.Progress], None] | None = None,
    ) -> "Common":
        """Train the networks that all start from, and weigh them beside the common volatility.

        - ``transformed``, ``panel``: series, the sampled ones among them
        - ``own``: which of them have networks of their own
        """
        sampled = np.isin(panel.ids, self.sampling.trained)
        some = transformed if sampled.all() else transformed.only(np.flatnonzero(sampled))
        pooled = train_pooled(config, network, some, seed, on_progress=on_progress)
        weighed = with_scale_weights(
            self.transform.learned.common_volatility, config, network, pooled.params, transformed,
            panel, own,
        )  # fmt: skip
        transform = self.transform.with_learned(common_volatility=weighed)
        return self._replace(transform=transform, pooled=pooled)


def learn_common(
    panel: Panel,
    config: Config,
    seed: int,
    sampling: Sampling,
    *,
    tune: bool = False,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Common:
    """Learn what the networks of all series share, for a fit of several parts.

    - ``panel``: the series of ``sampling``
    - others as for :func:`fit`
    """
    config, network = with_network(config, None)
    transform = transform_of(config, panel).with_static(panel)
    common = shared(transform, panel, config, sampling, tuned=tune)
    common = common._replace(transform=dataclasses.replace(common.transform, natures={}))
    if config.start != "pooled" or tune or not sampling.networks:
        return common
    part, horizon = panel.only(sampling.trained), config.horizon
    early = common.transform.with_series(part, config.season)
    early = early.with_components(part, horizon, held_back_rows(part.mask.sum(1), horizon))
    transformed = early.apply(part, horizon, sampling.steps)
    every = np.ones(len(part.ids), bool)
    return common.with_pooled(config, network, transformed, part, every, seed, on_progress)


def shared(
    transform: Transform, panel: Panel, config: Config, sampling: Sampling, *, tuned: bool
) -> Common:
    """Return what the sample of a panel shows, without networks."""
    if config.start != "pooled" or tuned:  # no series influences another
        return Common(sampling, transform)
    some = panel.only(sampling.weighed)
    modelled = sampling.networks and config.common_volatility
    held_back = validation_of(config, some.mask.sum(1)) if modelled else None
    return Common(sampling, transform.learned_from(some, config.horizon, held_back))


def bytes_of_series(config: Config, steps: int, channels: int) -> int:
    """Estimate the bytes that a series takes while it is trained; measured, with a margin.

    ``steps``: rows of the longest history; ``channels``: number of channels of the panel.
    """
    config, network = with_network(config, None)
    shapes = jax.tree.leaves(param_shapes(config, _features(config), network))
    weights = sum(math.prod(leaf.shape) for leaf in shapes) * config.members
    validated = config.longest_validation * config.horizon * (config.members + 4) * 8
    return steps * _bytes_of_step(config, channels) + 64 * weights + 4 * validated


def bytes_of_combining(config: Config, steps: int) -> int:
    """Estimate the bytes that one series takes while simple forecasts of it are combined.

    They are computed for one long series at a time, or for few short ones. ``steps``: its rows
    """
    combined = config.transform in ("auto", "combined")
    return 160 * steps * config.horizon if combined else 0


def bytes_of_sample(config: Config, series: int, steps: int, channels: int) -> int:
    """Estimate the bytes that :func:`learn_common` takes; measured, with a margin.

    ``series``: number of all series; others as for :func:`bytes_of_series`.
    """
    sampled = min(series, most_sampled(steps))
    each = _bytes_of_step(config, channels) if config.start == "pooled" else 48 * channels
    return 2 * sampled * steps * each // 3


def _features(config: Config) -> int:
    # Of all kinds of series, prices have the most features.
    kind = "log_return" if config.transform == "auto" or config.indices else config.transform
    return transform_class(kind)(kind, market=config.indices).feature_count(config.horizon)


def _bytes_of_step(config: Config, channels: int) -> int:
    """Return the bytes for one step of a series: panel, features, targets and temporary arrays."""
    return 24 * channels + 28 * _features(config) + 56 * config.horizon + 120
