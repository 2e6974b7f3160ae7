"""Learn what the networks of all series of a fit share, from a sample of the series."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from forecaster import swarm
from forecaster.forecasting.config import Config
from forecaster.forecasting.fitting.pooled import Pooled, sample_of, train_pooled
from forecaster.forecasting.fitting.validating import with_scale_weights
from forecaster.forecasting.methods import transform_of, worth_networks
from forecaster.forecasting.network_task import series_data, split_of, validation_of
from forecaster.forecasting.networks import with_network
from forecaster.forecasting.windows import padded_steps
from forecaster.series import Panel, Transform, held_back_rows


class Common(NamedTuple):
    """What the networks of all series of a fit share.

    - ``sample``: the series that weights and widths are learned from
    - ``steps``: steps that all histories are padded to
    - ``transform``: makes the inputs of networks; in a fit of several parts it does not know single
      series yet
    - ``pooled``: the networks that each series' networks start from; None where they start from
      random weights, or where the part itself trains them
    - ``networks``: if True, series that are long enough have networks, and a common network
      forecasts the others; if False, the combination forecasts all. In an update: which of its
      series may have networks
    """

    sample: tuple[str, ...]
    steps: int
    transform: Transform
    pooled: Pooled | None = None
    networks: bool | Bool[np.ndarray, " series"] = True


class Sampling(NamedTuple):
    """The samples from which a fit learns what all of its series share.

    - ``ids``: all sampled series, in the order of the fit
    - ``weighed``: the series that weights and widths are learned from
    - ``trained``: the series that the common networks are trained on
    - ``steps``: steps that all histories are padded to
    - ``networks``: see :class:`Common`
    """

    ids: tuple[str, ...]
    weighed: tuple[str, ...]
    trained: tuple[str, ...]
    steps: int
    networks: bool

    @staticmethod
    def of(config: Config, ids: Sequence[str], trained: Sequence[str], steps: int) -> "Sampling":
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
    transform = common.transform
    common = common._replace(transform=dataclasses.replace(transform, natures={}))
    if config.start != "pooled" or tune or not sampling.networks:
        return common
    part = panel.only(sampling.trained)
    transform = transform.with_series(part, config.season)
    held_back = held_back_rows(part.mask.sum(1), config.horizon)
    transform = transform.with_components(part, config.horizon, held_back)
    transformed = transform.apply(part, config.horizon, sampling.steps)
    pooled = train_pooled(
        config, split_of(config, sampling.steps), transformed.features.shape[-1], network,
        series_data(config, transformed), seed, on_progress=on_progress,
    )  # fmt: skip
    every = np.ones(len(part.ids), bool)
    weighed = with_scale_weights(
        common.transform.learned.common_volatility, config, network, pooled.params, transformed,
        part, every,
    )  # fmt: skip
    transform = common.transform.with_learned(common_volatility=weighed)
    return common._replace(transform=transform, pooled=pooled)


def shared(
    transform: Transform, panel: Panel, config: Config, sampling: Sampling, *, tuned: bool
) -> Common:
    """Return what the sample of a panel shows, without networks."""
    if config.start != "pooled" or tuned:  # no series influences another
        return Common(sampling.weighed, sampling.steps, transform)
    some = panel.only(sampling.weighed)
    modelled = sampling.networks and config.common_volatility
    held_back = validation_of(config, some.mask.sum(1)) if modelled else None
    transform = transform.learned_from(some, config.horizon, held_back)
    return Common(sampling.weighed, sampling.steps, transform, networks=sampling.networks)
