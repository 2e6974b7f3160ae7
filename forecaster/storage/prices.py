"""Read the stored prices that a saved model forecasts from, or learns from."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import Kind, ModelError, NoSeries, Skipped, StoreError
from forecaster.forecasting import Model
from forecaster.ingest import (
    Store,
    flags_now,
    frozen_now,
    masked_rows,
    panel_from_store,
    proposed_of,
)
from forecaster.series import Date, Finding, Layout, Panel, show_time
from forecaster.storage.run import Run, ids_to_read

# Reasons to skip a series that no longer hold once it has further rows.
_PASSES = (Kind.TOO_SHORT, Kind.NO_ROWS, Kind.OUTSIDE, Kind.MASKED, Kind.NOT_LOADED)


def forecasting_panel(
    store: Store, model: Model, ids: Sequence[str], end: Date | None = None
) -> tuple[Panel, list[Finding]]:
    """Read the stored prices to forecast from, and find what a user should know of them.

    Start and mask are those of the fit, but unconfirmed jumps are kept, since most are true. The
    fit's end is where it stopped learning, not where forecasts are made.

    - ``store``: of the source of the model's run
    - ``ids``: the series to forecast; the model's market is read beside them
    - ``end``: the last day, as if nothing after it were known; None: all that is stored

    Series that are no longer stored are named in the panel's ``skipped``. Raises ModelError when
    none of them or not the market is stored.
    """
    mask = [flag for flag in model.provenance.get("mask", ()) if flag != "unconfirmed"]
    flags, panel = _stored(store, model, ids, mask, end)
    latest = masked_rows(store, panel.ids, ("unconfirmed",), end, flags=flags)
    proposed = proposed_of(store, panel).items()
    return panel, [
        *(Finding("jumped", str(row.unique_id), show_time(row.ds)) for row in latest.itertuples()),
        *(Finding("frozen", name, day) for name, day in frozen_now(panel).items()),
        *(Finding("unadjusted", name, f"before {one.time}: {one.why}") for name, one in proposed),
    ]


def learning_panel(store: Store, model: Model, ids: Sequence[str]) -> Panel:
    """Read the stored prices that a model may learn from, as the fit of its run read them.

    Arguments and errors as of :func:`forecasting_panel`.
    """
    return _stored(store, model, ids, model.provenance.get("mask", ()))[1]


def _stored(
    store: Store, model: Model, ids: Sequence[str], mask: Sequence[str], end: Date | None = None
) -> tuple[pd.DataFrame, Panel]:
    """Read stored series as a panel, with the start of a model's fit, its market and peers.

    ``mask``: flags whose rows are left out. Returns also all flags of the store.
    """
    source, market = store.source, model.config.indices
    wanted = ids_to_read(ids, model.config)
    missing = [name for name in wanted if name not in store]
    if set(market) & set(missing) or not set(ids) - set(missing):
        raise ModelError(
            f"{', '.join(missing[:5])}: no longer stored under {store.folder}; run `forecaster "
            f"ingest --source {source}` again"
        )
    gone = dict.fromkeys(missing, Skipped(Kind.NOT_STORED, detail=source))
    read = [name for name in wanted if name not in gone]
    peers = [name for name in model.peers if name in store]
    flags = flags_now(store)
    flagged = masked_rows(store, [*read, *peers], mask, end, flags=flags)
    stored = functools.partial(
        panel_from_store, store,
        start=model.provenance.get("start"), end=end, flagged=flagged,
    )  # fmt: skip
    panel = stored(read, gone)
    if model.peers:
        panel = panel.with_peers(model.peers)
        if not set(peers) <= set(read):
            with contextlib.suppress(NoSeries, StoreError):  # none of them can be read
                layout = Layout(panel.times.dtype.kind)  # peers with other times are no help
                panel = dataclasses.replace(panel, peers=stored(peers, layout=layout))
    return flags, panel.with_indices(market, forecast=ids) if market else panel


def stored_ends(store: Store) -> dict[str, np.datetime64]:
    """Return the latest stored time of each series of a source that is not retired.

    Empty for a source whose rows only have numbers.
    """
    latest = store.index.latest
    if any(time.lstrip("-").isdecimal() for time in latest.values()):
        return {}
    return {name: np.datetime64(time, "ns") for name, time in latest.items()}


def all_series(
    store: Store, run: Run, *, newcomers: bool | None
) -> tuple[list[str], dict[str, Skipped], list[str]]:
    """Return the series of a run to forecast, new ones that belong to it, and retired ones.

    New are stored series without networks that were not there at the fit, or too short.

    ``newcomers``: whether new series belong to the run; None: if the fit took all that the source
    held

    Raises ModelError where nothing is left to forecast.
    """
    gone = set(store.index.retired)
    retired = [name for name in run.ids if name in gone]
    ids, new = [name for name in run.ids if name not in gone], list[str]()
    if run.provenance.get("whole_source", False) if newcomers is None else newcomers:
        hopeless = {name for name, why in run.index.skipped.items() if why.kind not in _PASSES}
        indices = {run.renames.get(name, name) for name in run.config.indices}
        known = {*run.ids, *gone, *hopeless, *indices}
        new = [name for name in store.ids if name not in known]
    if not ids and not new:
        raise ModelError(
            f"{run.folder}: all of its series are retired; restore some (`forecaster tickers "
            "restore`), or name those to forecast"
        )
    return ids, dict.fromkeys(new, Skipped(Kind.NO_NETWORK)), retired


def under_new_names(store: Store, run: Run) -> Run:
    """Return a run with the tickers that were renamed in its store under their new names."""
    if not (renames := store.index.renames):
        return run
    given = [name for name in renames if name in store]  # to other series, since the renaming
    until = run.fitted_until if given else {}
    for name in given:
        learned: Any = until.get(name)
        if learned is not None and learned >= type(learned)(store.index.series[name].first):
            del renames[name]  # the run learned from the other series
    return run.renamed(renames) if renames else run


def stored_newcomers(store: Store, model: Model, names: Iterable[str]) -> dict[str, str]:
    """Return the stored series among names without a network, which the common start can forecast.

    The keys are the names as given. Empty for independent networks.
    """
    if model.networks.start is None:
        return {}
    stored = {name: store.spelled(name) for name in names}
    return {name: series for name, series in stored.items() if series in store}
