"""Update a model with new rows: the networks of its series train on from where they are.

What all series share stays as it was: the common network, the weights of simple forecasts, the
widths of bands. A series that is not updated keeps its networks and bands, bit for bit; the others
need a short training. What is shared ages slowly; a full fit learns it anew.
"""

import dataclasses
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Unpack

import numpy as np

from forecaster import swarm
from forecaster.errors import (
    DataError,
    Kind,
    NoSeries,
    Skipped,
    UsageError,
    check_names,
    name_reasons,
)
from forecaster.forecasting.fitting.common import Common, Sampling
from forecaster.forecasting.fitting.fit import check_training, coverage_of, fit_part
from forecaster.forecasting.fitting.training import Pooled
from forecaster.forecasting.methods import rows_to_train
from forecaster.forecasting.model import Model, check_model, join_models
from forecaster.forecasting.predicting.predicting import match_panel
from forecaster.forecasting.windows import padded_steps
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel, names_in_short, show_time


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
    """Return a model that has learned from new rows; series without any stay as they are.

    The networks of a series train on from their present weights, with the model's settings; weight
    decay pulls back to these weights. Its bands are calibrated, and its classical models
    estimated, on all rows given: so give the whole history, as to :func:`fit`. What all series
    share is not learned again; series that the model does not know are left out.

    - ``panel``: the series with their new rows, or a frame that :func:`forecaster.load_panel`
      accepts
    - ``ids``: the series to update; by default all that have rows after those they learned from
    - ``seed``: determines every random draw, together with a series' name
    - ``executor, on_progress, columns``: as for :func:`fit`

    Raises UsageError for settings that were searched, and for a name that is not in both model and
    panel; DataError where no series has new rows, or a frame cannot be understood.
    """
    check_training(seed, executor=executor, on_progress=on_progress)
    panel = learnable(model, as_panel(panel, **columns))
    steps, networks = padded_steps(int(panel.mask.sum(1).max())), model.networks
    panel = panel.only(_wanted(model, panel, ids))
    bare = dataclasses.replace(model.transform, natures=MappingProxyType({}))
    pooled = None if networks.start is None else Pooled(networks.start, 0.0)
    # Independent networks have no common start, so a series that has grown cannot begin with one.
    able = networks.trained if pooled is None else networks.networked.any(keepdims=True)
    able = np.broadcast_to(able, len(model.ids))[networks.rows_of(panel.ids)]
    sampling = Sampling(panel.ids, panel.ids, (), steps, able)
    part, _, scores = fit_part(
        panel, model.config, seed, Common(sampling, bare, pooled),
        network=networks.network, before=networks, executor=executor, on_progress=on_progress,
    )  # fmt: skip
    done = set(part.ids)
    rest = [name for name in model.ids if name not in done]
    joined = join_models([model.only(rest), part] if rest else [part]).only(model.ids)
    latest = show_time(model.fitted_until.max())  # that any series learned from
    return dataclasses.replace(
        joined,
        networks=dataclasses.replace(joined.networks, start=networks.start),
        widths=model.widths,
        channels=model.channels,
        frequency=model.frequency,
        skipped=model.skipped,
        provenance={
            **model.provenance,
            **{name: part.provenance[name] for name in ("computed", "products")},
            "coverage": coverage_of([scores], model.widths),
            "fitted_until": model.provenance.get("fitted_until", latest),
            "updated": sorted(done),
        },
    )


def learnable(model: Model, panel: Panel) -> Panel:
    """Return the series of a model that it can learn from again, without rows that look wrong.

    Series are left out, and named in the panel's ``skipped``, that have too few rows for their
    networks, rows of another spacing than before, less than half of the rows that they learned
    from, or a market that ends before them.

    Raises UsageError for settings that were searched, and ModelError or NoSeries when no series is
    left.
    """
    check_model(model)
    if model.provenance.get("tuned"):
        raise UsageError(
            "this model was tuned: each series has settings of its own, which an update cannot "
            "use. Fit it again"
        )
    panel = match_panel(model, panel).masked()
    config = model.config
    needed = rows_to_train(config, model.transform)
    own = dict(zip(model.ids, model.networks.trained, strict=True))
    learned = dict(zip(model.ids, model.report["rows"].to_numpy(int).tolist(), strict=True))
    known = [name for name in panel.ids if name in own]
    rows = dict(zip(panel.ids, map(int, panel.mask.sum(1)), strict=True))
    reasons: dict[str, Skipped] = {}
    for name in known:
        if own[name] and rows[name] < needed:
            reasons[name] = Skipped(Kind.TOO_SHORT, rows[name], needed, detail="of its networks")
        elif 2 * rows[name] < (before := learned[name]):
            why = f"it has learned from {before:,}, and an update needs them, too"
            reasons[name] = Skipped(Kind.TOO_SHORT, rows[name], before, detail=why)
    kept = [name for name in known if name not in reasons]
    if not kept:
        raise NoSeries({**panel.skipped, **reasons})
    return panel.only(kept, reasons)


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
    new = {name: rows for name, rows in rows_since(model, panel).items() if rows}
    if ids is not None:
        check_names("ids", ids, "a list of names, or None for all")
    wanted, there = list(new if ids is None else ids), set(panel.ids)
    if unknown := [name for name in wanted if name not in there]:
        why = {name: panel.skipped[name] for name in unknown if name in panel.skipped}
        raise UsageError(
            "ids: expected series of the model that the panel has too; got "
            + (name_reasons(why) if why else names_in_short(unknown))
        )
    old = [name for name in wanted if name not in new]
    if old or not wanted:
        lacking = f"{names_in_short(old)} have no" if old else "no series of the model has"
        raise DataError(
            f"nothing is updated: {lacking} rows after those of the last training. Load newer rows"
        )
    wanted = set(wanted)
    return [name for name in panel.ids if name in wanted]
