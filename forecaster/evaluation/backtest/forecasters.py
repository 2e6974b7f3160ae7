"""The forecasts of an evaluation: those of our networks, of the baselines and of PyTorch."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import DataError
from forecaster.evaluation.baselines import Runner
from forecaster.evaluation.origins.rolling_origin import RollingOrigin
from forecaster.evaluation.scores.tables import LATEST
from forecaster.forecasting import FORECAST_BY, renamed_columns
from forecaster.ingest import Membership
from forecaster.series import Panel

_LARGEST = 1e30  # value whose forecasts float32 holds, however far they reach


@dataclasses.dataclass(frozen=True)
class Forecasters:
    """Everything that forecasts in an evaluation.

    - ``networks``: our networks
    - ``runner``: runs the baselines
    - ``torch``: the networks that PyTorch trained for some series; None: there are none
    - ``torch_failed``: series that PyTorch could not train, with the reason
    """

    networks: RollingOrigin
    runner: Runner
    torch: RollingOrigin | None = None
    torch_failed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> str:
        """The column of our networks' forecasts."""
        return self.networks.config.column

    def forecasts(self, membership: Membership | None) -> Iterator[tuple[Panel, pd.DataFrame]]:
        """Yield batches of series, and their forecasts from cutoffs at which they were members.

        The frame has the keys, the columns of every model, and ``latest``, the value at the cutoff.
        """
        for origins, forecasts in self.networks.batches():
            parts = [origins.keys, forecasts, self.runner.run(origins)]
            if self.torch is not None:
                parts.append(_as_torch(self.torch.forecasts(origins), self.model))
            frame = pd.concat(parts, axis=1).assign(**{LATEST: origins.latest})
            if membership is not None:
                ids, cutoffs = frame["unique_id"].to_numpy(), frame["cutoff"].to_numpy()
                frame = frame[membership.holds(ids, cutoffs)].reset_index(drop=True)
            yield origins.panel, frame


def number_type(panel: Panel) -> type[np.floating[Any]]:
    """Return the type in which forecasts are stored: float32, unless a series is beyond it.

    Forecasts may be far from their series, so series near its limits (3e38, 1e-38) are beyond it.
    """
    values = np.abs(np.where(panel.mask, panel.channel(panel.target), 0.0)).max(axis=1)
    beyond = (values > _LARGEST) | ((values > 0) & (values < 1 / _LARGEST))
    return np.float64 if beyond.any() else np.float32


def torch_sample(ids: Sequence[str], most: int) -> list[str]:
    """Return the series that PyTorch trains: ``most`` at most, evenly spaced."""
    return list(ids[:: max(1, len(ids) // max(1, most))][:most])


def by_torch(
    networks: RollingOrigin,
    known: Panel,
    seed: int,
    on_series: Callable[[int, int], None] | None,
) -> tuple[RollingOrigin | None, dict[str, str]]:
    """Let PyTorch train networks of some series on ``known``, the data that our networks have seen.

    Returns the networks, and the series on which PyTorch failed, with the reason.
    """
    from forecaster.evaluation.baselines import fit_by_torch

    ids = known.ids
    try:
        trained = fit_by_torch(known, networks.config, seed, on_series)
    except DataError as error:
        return None, dict.fromkeys(ids, str(error).splitlines()[-1].strip())
    failed = {name: str(why) for name, why in trained.skipped.items() if name in ids}
    both = networks.panel.only([name for name in networks.panel.ids if name in set(trained.ids)])
    return RollingOrigin(both, ((trained, networks.cutoffs),), networks.level), failed


def _as_torch(forecasts: pd.DataFrame, model: str) -> pd.DataFrame:
    """Rename the columns of forecasts to those of PyTorch."""
    from forecaster.evaluation.baselines import COLUMN

    forecasts = forecasts.drop(columns=FORECAST_BY, errors="ignore")  # of ours, not of PyTorch's
    return forecasts.rename(columns=renamed_columns(forecasts, model, COLUMN))
