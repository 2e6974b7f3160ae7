"""Our networks, the baselines and PyTorch side by side: the forecasts of an evaluation."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.errors import DataError
from forecaster.evaluation.baselines import Runner
from forecaster.evaluation.origins.rolling_origin import Origins, RollingOrigin
from forecaster.evaluation.scores.tables import LATEST
from forecaster.forecasting import KEYS, renamed_columns
from forecaster.ingest import Membership
from forecaster.series import Panel


@dataclasses.dataclass(frozen=True)
class Forecasters:
    """All that forecasts in an evaluation.

    - ``networks``: ours
    - ``runner``: of the baselines
    - ``torch``: PyTorch's networks, for some of the series or none
    - ``torch_failed``: series that PyTorch could not train, with the reason
    """

    networks: RollingOrigin
    runner: Runner
    torch: RollingOrigin | None = None
    torch_failed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> str:
        """The column of our networks."""
        return self.networks.config.column

    def forecasts(self) -> Iterator["Forecasts"]:
        """The forecasts of a batch of series after the other."""
        for origins, forecasts in self.networks.batches():
            parts = [origins.keys, forecasts, self.runner.run(origins)]
            if self.torch is not None:
                parts.append(_as_torch(self.torch.forecasts(origins), self.model))
            frame = pd.concat(parts, axis=1).assign(**{LATEST: origins.latest})
            yield Forecasts(origins, frame)


class Forecasts(NamedTuple):
    """All forecasts of a batch of series; ``frame``: keys, every model's columns and ``latest``."""

    origins: Origins
    frame: pd.DataFrame

    def of_members(self, membership: Membership | None) -> "Forecasts":
        """Those from cutoffs at which the series belonged to the universe."""
        if membership is None:
            return self
        ids, cutoffs = self.frame["unique_id"].to_numpy(), self.frame["cutoff"].to_numpy()
        frame = self.frame[membership.holds(ids, cutoffs)].reset_index(drop=True)
        return self._replace(frame=frame)

    def to_store(self) -> pd.DataFrame:
        """Forecasts as float32, half the room; the keys stay as they are."""
        frame = self.frame.drop(columns=LATEST)
        return frame.astype(dict.fromkeys(frame.columns[len(KEYS) :], np.float32))


def torch_sample(ids: Sequence[str], most: int) -> list[str]:
    """The series that PyTorch trains, evenly picked."""
    return list(ids[:: max(1, len(ids) // max(1, most))][:most])


def by_torch(
    networks: RollingOrigin,
    known: Panel,
    seed: int,
    on_series: Callable[[int, int], None] | None,
    executor: swarm.Executor | None,
) -> tuple[RollingOrigin | None, dict[str, str]]:
    """Networks of some series trained by PyTorch on what ours have seen, ``known``.

    Also returns the series on which it failed, with the reason.
    """
    from forecaster.evaluation.baselines import fit_by_torch

    ids = known.ids
    try:
        trained = fit_by_torch(known, networks.config, seed, executor=executor, on_series=on_series)
    except DataError as error:
        return None, dict.fromkeys(ids, str(error).splitlines()[-1].strip())
    failed = {name: str(why) for name, why in trained.skipped.items() if name in ids}
    both = networks.panel.only([name for name in networks.panel.ids if name in set(trained.ids)])
    return RollingOrigin(both, ((trained, networks.cutoffs),), networks.level), failed


def _as_torch(forecasts: pd.DataFrame, model: str) -> pd.DataFrame:
    """Forecasts under the name of PyTorch."""
    from forecaster.evaluation.baselines import COLUMN

    return forecasts.rename(columns=renamed_columns(forecasts, model, COLUMN))
