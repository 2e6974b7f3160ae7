"""Estimate the memory that a fit takes."""

import math

import jax

from forecaster.forecasting.config import Config
from forecaster.forecasting.fitting.pooled import most_sampled
from forecaster.forecasting.networks import param_shapes, with_network
from forecaster.series import transform_class


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
