"""Check the arguments of fits before any work."""

from collections.abc import Callable

from forecaster import swarm
from forecaster.errors import (
    UsageError,
    check_callable,
    check_flag,
    check_seed,
    check_type,
    wrong_argument,
)
from forecaster.forecasting.config import Config
from forecaster.series import Panel


def check_training(
    seed: int,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> None:
    """Raise UsageError for an argument of :func:`fit` that is of another type."""
    check_seed(seed)
    expected = "a forecaster.swarm.Checkpoint or None"
    check_type("checkpoint", checkpoint, swarm.Checkpoint | None, expected)
    runs = callable(getattr(executor, "run", None)) and hasattr(executor, "is_local")
    if executor is not None and not runs:
        expected = "an executor, such as forecaster.distributed.Ray(), or None for this process"
        raise wrong_argument("executor", executor, expected)
    check_callable("on_progress", on_progress)


def check_search(config: Config, *, tune: bool) -> None:
    """Raise UsageError for a search without networks, and for anything but True and False."""
    check_flag("tune", tune)
    if tune and config.is_classical:
        raise UsageError(
            f"the model {config.model} has no settings to search: its parameters are always "
            "estimated. Leave out the search (tune)"
        )


def check_static(panel: Panel, config: Config, *, tune: bool) -> None:
    """Raise UsageError for static covariates where no network learns from several series."""
    check_covariates(panel, config)
    if panel.static is not None and (config.start != "pooled" or tune):
        raise UsageError(
            "static covariates tell series apart for a network that is trained on all of them; "
            "here each series has its own. Leave them out, or take start = 'pooled' without a "
            "search"
        )


def check_covariates(panel: Panel, config: Config) -> None:
    """Raise UsageError for covariates that a classical model does not see."""
    if config.is_classical and (panel.static is not None or panel.future is not None):
        raise UsageError(
            f"the model {config.model} sees nothing but its own series, and no covariates. Leave "
            "them out, or take model = 'auto'"
        )
