"""The options of an evaluation, and its callbacks."""

import dataclasses
from collections.abc import Callable

from forecaster import swarm
from forecaster.errors import UsageError, check_names, check_seed, check_type, check_whole
from forecaster.evaluation.baselines import check_available, check_torch
from forecaster.forecasting import Config
from forecaster.ingest import Groups, Membership

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
"""The bands of an evaluation, in percent: their bounds and the median are the quantiles 5 %, 10 %,
..., 95 %; one band more is wider."""


@dataclasses.dataclass(frozen=True)
class BacktestOptions:
    """What to evaluate, and which baselines to compare with.

    - ``n_windows``: number of cutoffs, the latest ones; None: 250, or fewer for short series
    - ``step_size``: times between two cutoffs
    - ``baselines``: names of :data:`forecaster.evaluation.baselines.BASELINES`, and ``torch``, the
      same networks trained by PyTorch; ``naive`` is always among them
    - ``refit``: train at the first cutoff only (False), at each (True), or after this many cutoffs
    - ``seed``: the seed of our networks and of PyTorch's
    - ``torch_sample``: number of series that PyTorch trains, evenly spaced among all
    - ``membership``: if given, only forecasts from cutoffs at which the series belonged to the
      universe count
    - ``ends``: as for :func:`forecaster.cross_validation`
    - ``groups``: groups of series, such as sectors, that the report summarises

    Raises UsageError for a value of another type, and for own ends beside a membership.
    """

    n_windows: int | None = None
    step_size: int = 1
    baselines: tuple[str, ...] = ("naive", "ewma")
    refit: bool | int = False
    seed: int = 0
    torch_sample: int = 50
    membership: Membership | None = None
    ends: str = "auto"
    groups: Groups | None = None

    def __post_init__(self) -> None:
        if self.n_windows is not None:
            check_whole("n_windows", self.n_windows, 1)
        check_whole("step_size", self.step_size, 1)
        check_names("baselines", self.baselines)
        check_seed(self.seed)
        check_whole("torch_sample", self.torch_sample, 1)
        expected = "a forecaster.ingest.Membership or None"
        check_type("membership", self.membership, Membership | None, expected)
        check_type("groups", self.groups, Groups | None, "a forecaster.ingest.Groups or None")
        if self.membership is not None and self.ends == "own":
            raise UsageError("dates of membership need common cutoffs; leave out ends = own")

    def check(self, config: Config) -> None:
        """Raise UsageError for models that are not available here, or not beside these settings."""
        check_available(self.runner_names, config.model)
        if self.with_torch:
            check_torch(config, refit=self.refit)

    @property
    def with_torch(self) -> bool:
        """Whether PyTorch trains networks too."""
        return "torch" in self.baselines

    @property
    def runner_names(self) -> list[str]:
        """The baselines other than PyTorch, each once, naive first."""
        return list(dict.fromkeys(["naive", *(n for n in self.baselines if n != "torch")]))


@dataclasses.dataclass(frozen=True)
class BacktestCallbacks:
    """Functions that are called during an evaluation.

    - ``training(progress)``: while our networks train
    - ``torch(done, total)``, ``forecast(done, total)``: after series that PyTorch has trained, or
      that were forecast
    """

    training: Callable[[swarm.Progress], None] | None = None
    torch: Callable[[int, int], None] | None = None
    forecast: Callable[[int, int], None] | None = None
