"""Update a model with new rows: the networks of its series train on from where they are.

What all series share stays as it was: the common network, the weights of simple forecasts, the
widths of bands. So a series that is not updated keeps every bit of its forecasts, and the others
need a short training. What is shared ages slowly; a full fit learns it anew.
"""

import dataclasses
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Unpack

import numpy as np

from forecaster import swarm
from forecaster.errors import DataError, UsageError
from forecaster.forecasting.fitting.fit import Common, fit_part
from forecaster.forecasting.fitting.pooled import Pooled
from forecaster.forecasting.model import Model, check_model, join_models
from forecaster.forecasting.predicting.matching import match_panel
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel
from forecaster.showing import names_in_short


def update(
    model: Model,
    panel: Panel | Table,
    ids: Sequence[str] | None = None,
    *,
    seed: int = 0,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
    **columns: Unpack[ColumnOptions],
) -> Model:
    """Return a model that has learned from new rows; series without any keep all their bits.

    The networks of a series train on from their weights, which weight decay pulls back to, with the
    model's settings. Its bands are calibrated, and its drift and classical models estimated, on all
    rows given: so give the whole history, as to :func:`fit`. What all series share is not learned
    again; series that the model does not know are left out.

    - ``panel``: the series with their new rows, or a frame that :func:`forecaster.load_panel`
      accepts
    - ``ids``: the series to update; by default all that have rows after those they learned from
    - ``seed``: determines every random draw, together with a series' name
    - ``executor, on_progress, columns``: as for :func:`fit`

    Raises UsageError for settings that were searched, and for a name that is not in both model and
    panel; DataError where no series has new rows, or a frame cannot be understood.
    """
    check_model(model)
    if model.provenance.get("tuned"):
        raise UsageError(
            "the settings of this model were searched for each series, and an update trains with "
            "those of all. Fit it again"
        )
    panel = match_panel(model, as_panel(panel, **columns), latest=False).masked()
    wanted = _wanted(model, panel, ids)
    steps = int(panel.mask.sum(1).max())
    return updated_part(model, panel.only(wanted), steps, seed, executor, on_progress)


def updated_part(
    model: Model,
    panel: Panel,
    steps: int,
    seed: int,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Model:
    """Update series of a model that may be a part of a larger one.

    - ``panel``: the series to update, all in the model, without rows that look wrong
    - ``steps``: rows of the longest history of the whole fit
    - others as for :func:`update`
    """
    networks = model.networks
    bare = dataclasses.replace(model.transform, natures=MappingProxyType({}))
    pooled = None
    if networks.start is not None:
        pooled = Pooled(networks.start, np.zeros(0, int), np.zeros(0), 0.0)
    common = Common((), steps, bare, pooled, networks=bool(networks.networked.any()))
    part = fit_part(
        panel, model.config, seed, common, network=networks.network, before=networks,
        executor=executor, on_progress=on_progress,
    )  # fmt: skip
    done = set(part.model.ids)
    rest = [name for name in model.ids if name not in done]
    new = dataclasses.replace(
        part.model, spread=model.spread, spread_without=model.spread_without, skipped={},
        channels=model.channels, frequency=model.frequency,
    )  # fmt: skip
    parts = [model.only(rest), new] if rest else [new]
    joined = join_models(parts).only(model.ids)
    return dataclasses.replace(
        joined,
        networks=dataclasses.replace(joined.networks, start=networks.start),
        skipped=model.skipped,
        provenance={**model.provenance, "updated": sorted(done)},
    )


def rows_since(model: Model, panel: Panel) -> dict[str, int]:
    """Return how many rows each series of a model has after those it learned from.

    Series that are not in the panel are left out.
    """
    until = dict(zip(model.ids, model.fitted_until, strict=True))
    rows = zip(panel.ids, panel.mask, strict=True)
    return {
        name: int((panel.times[seen] > until[name]).sum()) for name, seen in rows if name in until
    }


def _wanted(model: Model, panel: Panel, ids: Sequence[str] | None) -> list[str]:
    """Return the series to update. Raises UsageError or DataError as :func:`update`."""
    if ids is None:
        new = [name for name, rows in rows_since(model, panel).items() if rows]
        if not new:
            raise DataError(
                "no series of the model has rows after those it learned from: nothing is updated"
            )
        return new
    unknown = [name for name in ids if name not in set(model.ids) & set(panel.ids)]
    if unknown:
        raise UsageError(
            f"ids: expected series of the model that the panel has too; got "
            f"{names_in_short(unknown)}"
        )
    return [name for name in panel.ids if name in set(ids)]
