"""What to evaluate, against what, and what is called meanwhile."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from forecaster import swarm
from forecaster.ingest import Groups, Membership

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
"""Bands whose bounds and median are the 19 quantiles from 5 to 95 %, and a wider one."""


@dataclasses.dataclass(frozen=True)
class BacktestOptions:
    """What to evaluate, and against what.

    - ``n_windows``: cutoffs to forecast from, the latest ones; None: 250, or fewer of short series
    - ``step_size``: times between two
    - ``baselines``: names of :data:`forecaster.evaluation.baselines.BASELINES`, and ``torch``, the
      same networks trained by PyTorch; ``naive`` is always among them
    - ``refit``: train at the first cutoff only (False), at each (True), or every so many
    - ``seed``: of our networks and PyTorch's
    - ``torch_sample``: how many of the series PyTorch trains, evenly picked
    - ``membership``: if given, forecasts count only from cutoffs at which the series belonged to
      the universe
    - ``ends``: as for :func:`forecaster.cross_validation`
    - ``cache``: a folder where slow baselines keep their forecasts
    - ``groups``: of the series, such as sectors, that the report summarises
    """

    n_windows: int | None = None
    step_size: int = 1
    baselines: tuple[str, ...] = ("naive", "ewma")
    refit: bool | int = False
    seed: int = 0
    torch_sample: int = 50
    membership: Membership | None = None
    ends: str = "auto"
    cache: Path | None = None
    groups: Groups | None = None

    @property
    def with_torch(self) -> bool:
        """Whether PyTorch trains networks too."""
        return "torch" in self.baselines

    @property
    def runner_names(self) -> list[str]:
        """The baselines that need no training, each once, naive first."""
        return list(dict.fromkeys(["naive", *(n for n in self.baselines if n != "torch")]))


@dataclasses.dataclass(frozen=True)
class BacktestCallbacks:
    """What is called as an evaluation goes on.

    - ``training``: as our networks train
    - ``torch``, ``forecast``: how many series are done, of how many
    """

    training: Callable[[swarm.Progress], None] | None = None
    torch: Callable[[int, int], None] | None = None
    forecast: Callable[[int, int], None] | None = None
