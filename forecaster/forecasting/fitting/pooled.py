"""Train one network on all series for a short time; the networks of each series start from it.

Early stopping uses the latest span of all series, which is later than all training data. Without
it the network memorises the dates that series share, and forecasts worse than no network.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.forecasting.config import Config
from forecaster.forecasting.model import Params
from forecaster.forecasting.network_task import make_task, series_data, split_of
from forecaster.forecasting.networks import OwnNetwork
from forecaster.series import Transformed, sampled_names

_LARGEST_BATCH = 256  # windows
_STAGE = "a start for all series"  # in reports of progress
_STEPS = 20  # fewest steps per epoch, unless batches would be smaller than those of a single series


class Pooled(NamedTuple):
    """Networks trained on all series.

    - ``params``: their weights, each array (member, ...)
    - ``seconds``: the time of their training
    - ``alone``: their training, where they learned from one series: they are its own networks
    """

    params: Params
    seconds: float
    alone: swarm.FitResult | None = None


def train_pooled(
    config: Config,
    network: OwnNetwork | None,
    transformed: Transformed,
    seed: int,
    *,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Pooled:
    """Train ``config.members`` networks, each on all series.

    - ``config, network``: as for the networks of single series
    - ``transformed``: what they learn from, a row per series
    - ``seed``: determines the initial weights and the batches
    """
    devices = swarm.lane_mesh().size
    if config.data_parallel > devices:
        raise UsageError(
            f"data_parallel: expected at most the number of devices, {devices}; got "
            f"{config.data_parallel}. Take {devices}, or leave it out"
        )
    split = split_of(config, transformed.z.shape[1])
    data = series_data(config, transformed)
    covered = max(1, split.lookback - split.burn_in)
    lengths = np.maximum(data.boundary - data.first, covered)
    windows = int(np.round(lengths / covered).sum())  # that cover all training spans once
    batch = min(_LARGEST_BATCH, max(config.batch_size, windows // _STEPS))
    batches = max(1, math.ceil(windows / batch))
    features = transformed.features.shape[-1]
    task = make_task(config, split, features, network, pooled=(batches, batch))
    epochs, patience = config.limits("pooled")
    # The names, and so the random draws, do not depend on the series.
    names = [f"all series\x1f{k}" for k in range(config.members)]
    fitted = swarm.fit(
        task,
        swarm.Shared(data),
        names,
        seed=seed,
        epochs=epochs,
        patience=patience,
        hyperparams=config.hyperparams("pooled"),
        data_parallel=config.data_parallel,
        on_progress=on_progress
        and (lambda progress: on_progress(dataclasses.replace(progress, stage=_STAGE))),
    )
    return Pooled(fitted.params, fitted.seconds, fitted if len(lengths) == 1 else None)


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
