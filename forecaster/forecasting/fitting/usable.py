"""Find the series of a panel that can be forecast."""

from typing import NamedTuple

from forecaster.config import Config
from forecaster.errors import NoSeries
from forecaster.forecasting.rungs import trains
from forecaster.series import Panel, Transform, behind_market
from forecaster.skipped import Kind, Skipped


class Usable(NamedTuple):
    """The series of a panel that can be forecast.

    - ``rows``: the number of rows of each series
    - ``trained``: the series that networks of their own are trained on
    - ``skipped``: the others, with the reason
    """

    rows: dict[str, int]
    trained: list[str]
    skipped: dict[str, Skipped]


def transform_of(config: Config, panel: Panel) -> Transform:
    """Return the transform of a panel under a config."""
    alone = config.model if config.is_classical else None
    return Transform.choose(config.transform, panel, config.season, alone)


def usable_rows(panel: Panel, config: Config) -> Usable:
    """Return the rows of each series that can be forecast, and why the others cannot."""
    transform = transform_of(config, panel)
    try:
        kept = usable(panel, config, transform)
    except NoSeries as error:
        return Usable({}, [], error.skipped)
    own = trains(kept, config, transform)
    rows = dict(zip(kept.ids, map(int, kept.mask.sum(1)), strict=True))
    trained = [name for name, one in zip(kept.ids, own, strict=True) if one]
    return Usable(rows, trained, dict(kept.skipped))


def usable(panel: Panel, config: Config, transform: Transform) -> Panel:
    """Return the panel without series that are too short or that the transform cannot take."""
    rows = transform.usable_rows(panel)
    reasons = rows.reasons() | behind_market(panel)
    if transform.takes_any:
        reasons = rows.too_far_apart() | reasons
        for name, count in zip(panel.ids, panel.mask.sum(1), strict=True):
            if not count:
                reasons[name] = Skipped(Kind.TOO_SHORT, 0, 1, detail="its first")
        return panel.only([name for name in panel.ids if name not in reasons], reasons)
    seasonal = f" + season {transform.season}" if transform.rows_needed() else ""
    needed = config.rows_to_fit + transform.rows_needed()
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < needed:
            why = config.why_rows + seasonal
            reasons[name] = Skipped(Kind.TOO_SHORT, int(rows), needed, detail=why)
    return panel.only([name for name in panel.ids if name not in reasons], reasons)
