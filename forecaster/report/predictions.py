"""Gather the data that the page of forecasts shows, from a prediction and the record."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from forecaster.files import Home, run_name
from forecaster.ingest import Groups
from forecaster.record import record_of
from forecaster.report.forecasts import Forecasts

if TYPE_CHECKING:
    from forecaster.pipeline import Prediction


def forecasts_of(
    home: Home,
    made: "Prediction",
    levels: Sequence[float],
    groups: Groups | None = None,
    *,
    on_notice: Callable[[str], None] | None = None,
) -> Forecasts:
    """Return a prediction with the record of its source, for :func:`build_forecasts`.

    - ``levels``: levels of the bands to show, in percent
    - ``groups``: groups of the series, such as sectors
    - ``on_notice(message)``: called for each file of the record that cannot be read
    """
    source = str(made.model.provenance.get("source"))
    record = record_of(home, source)
    for path, why in record.damaged.items():
        if on_notice is not None:
            on_notice(f"Warning: {path}: left out, since it cannot be read: {why}")
    return Forecasts(
        made.panel, made.frame, made.model.config.column, tuple(levels), run_name(made.run), source,
        made.findings, record.frames.get(source),
        groups.of(list(made.panel.ids)) if groups else None,
        made.model.provenance.get("findings", ()),
    )  # fmt: skip
