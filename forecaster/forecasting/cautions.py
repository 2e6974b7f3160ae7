"""What a reader of forecasts is warned of: that they rest on little, or on what may be wrong."""

import warnings
from collections.abc import Sequence

import numpy as np

from forecaster.errors import ForecasterWarning, name_reasons
from forecaster.forecasting.model import Model
from forecaster.series import Panel, show_time

_NAMED = 3


def warn_of_few_scores(model: Model, panel: Panel, level: Sequence[float]) -> None:
    """Of n outcomes the outermost is at about 1 / (n + 1) on each side; warn of levels beyond.

    Only of the panel's series that the model has networks of their own for.
    """
    wanted = set(panel.ids)
    counts = {
        name: int(np.isfinite(scores).sum(0).min())
        for name, scores in zip(model.ids, model.normal_scores, strict=True)
        if name in wanted
    }
    fewest = min(counts.values(), default=10**9)
    beyond = [percent for percent in level if percent > _highest(fewest)]
    if not beyond:
        return
    few = [name for name, count in counts.items() if beyond[0] > _highest(count)]
    which = "" if len(few) == len(counts) else f" of {len(few)} series"
    named = "" if len(few) == len(counts) else f" ({', '.join(few[:_NAMED])}, ...)"
    warnings.warn(
        f"the {' and '.join(f'{percent:g} %' for percent in beyond)} band{which} rests on the "
        f"forecast distribution more than on the {fewest} errors it is calibrated on, which hold "
        f"up to {_highest(fewest):.1f} %{named}; fit with a larger validation",
        ForecasterWarning,
        stacklevel=3,
    )


def _highest(count: int) -> float:
    """The widest band in percent that so many errors hold."""
    return 100 * (1 - 2 / (count + 1))


def warn_of_jumps(panel: Panel) -> None:
    """Warn of latest rows that are forecast from though they may be errors."""
    jumped = panel.flagged() & ~panel.flagged(forecasting=True)
    if names := [panel.ids[row] for row in np.flatnonzero(jumped.any(1))]:
        warnings.warn(
            f"{len(names)} series jumped at their latest row, which may be an error: "
            f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}",
            ForecasterWarning,
            stacklevel=3,
        )


def warn_of_hindsight(model: Model, panel: Panel) -> None:
    """Warn of series that end before their networks do: what is forecast was learned from."""
    until = dict(zip(model.ids, model.fitted_until, strict=True))
    early = {
        name: f"ends {show_time(times[-1])}; its networks have seen rows up to "
        f"{show_time(until[name])}, so this is no forecast. Fit on the rows until then, or use "
        "cross_validation"
        for name, row in zip(panel.ids, panel.mask, strict=True)
        if name in until and (times := panel.times[row])[-1] < until[name]
    }
    if early:
        message = f"{len(early)} series end before the fit did:\n{name_reasons(early)}"
        warnings.warn(message, ForecasterWarning, stacklevel=3)
