"""Read the stored prices that a saved model forecasts from."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forecaster.errors import ModelError
from forecaster.forecasting import Model
from forecaster.home import Home
from forecaster.ingest import Date, Store, masked_rows, panel_from_store
from forecaster.series import Panel, show_time
from forecaster.skipped import Kind, Skipped
from forecaster.storage.model.checking import facts_of
from forecaster.storage.runs.opened import OpenRun
from forecaster.storage.runs.request import ids_to_read

# Reasons of a fit to skip a series that further rows put an end to.
_PASSES = (Kind.TOO_SHORT, Kind.NO_ROWS, Kind.OUTSIDE, Kind.MASKED, Kind.NOT_LOADED)


def forecasting_panel(
    home: Home, model: Model, ids: Sequence[str], end: Date | None = None
) -> tuple[Panel, dict[str, str]]:
    """Read the stored prices to forecast from; also return the days of unconfirmed jumps.

    Start and mask are those of the fit, but unconfirmed jumps are kept, since most are true. The
    fit's end is where it stopped learning, not where forecasts are made.

    - ``model``: of a run; its provenance names the source
    - ``ids``: the series to forecast; the model's market is read beside them
    - ``end``: the last day, as if nothing after it were known; None: all that is stored

    Series that are no longer stored are named in the panel's ``skipped``. Raises ModelError when
    none of them or not the market is stored, and when the model names no source.
    """
    source = model.provenance.get("source")
    if source is None:
        raise ModelError(
            "this model does not say where its data are, since it was saved by `fc.save` and not "
            "by `forecaster fit`; forecast with fc.predict(fc.load(FOLDER), panel)"
        )
    store = Store.open(home, source)
    read = ids_to_read(ids, model.config)
    missing = [name for name in read if name not in store]
    if model.config.market in missing or not set(ids) - set(missing):
        raise ModelError(
            f"{', '.join(missing[:5])}: no longer stored under {store.folder}; run `forecaster "
            f"ingest --source {source}` again"
        )
    gone = dict.fromkeys(missing, Skipped(Kind.NOT_STORED, detail=source))
    read = [name for name in read if name not in gone]
    start = model.provenance.get("start")
    mask = [flag for flag in model.provenance.get("mask", ()) if flag != "unconfirmed"]
    jumped, flagged = {}, None
    if store.is_reviewed:
        flags = store.flags()
        latest = masked_rows(store, read, ("unconfirmed",), end, flags=flags)
        jumped = {str(row.unique_id): show_time(row.ds) for row in latest.itertuples()}
        flagged = masked_rows(store, read, mask, end, flags=flags)
    else:  # stored by an older version, or by a run that was interrupted
        mask = []
    panel = panel_from_store(
        store, read, start=start, end=end, mask=mask, known_by=end, skipped=gone, flagged=flagged
    )
    if (market := model.config.market) is not None:
        panel = panel.with_market(market, forecast=market in ids)
    return panel, jumped


class SinceFit(NamedTuple):
    """How the stored series of a run's source have changed since its fit.

    - ``retired``: series with networks of which no more rows are to come
    - ``new``: stored series without networks that were not there at the fit, or too short
    - ``expected``: whether these belong to the run, which was fitted on all that the source held
    """

    retired: list[str]
    new: list[str]
    expected: bool

    @staticmethod
    def of(home: Home, run: OpenRun) -> "SinceFit":
        """Compare the store with a run. Without a store nothing has changed."""
        facts = facts_of(run.rest, run.folder)
        provenance = facts["provenance"]
        source = provenance.get("source")
        expected = bool(provenance.get("whole_source", False))
        if source is None or not home.store(source).exists():
            return SinceFit([], [], expected)
        store = Store.open(home, source)
        retired = set(store.index.retired)
        learned = set(run.ids)
        hopeless = {name for name, why in run.skipped.items() if why.kind not in _PASSES}
        known = learned | retired | hopeless | {facts["config"].market}
        return SinceFit(
            [name for name in run.ids if name in retired],
            [name for name in store.ids if name not in known],
            expected,
        )


def stored_newcomers(home: Home, model: Model, names: Iterable[str]) -> dict[str, str]:
    """Return the stored series among names without a network, which the common start can forecast.

    The keys are the names as given. Empty for independent networks, and where no prices are stored.
    """
    names, source = list(names), model.provenance.get("source")
    if (
        not names
        or model.networks.start is None
        or source is None
        or not (home.store(source)).exists()
    ):
        return {}
    store = Store.open(home, source)
    stored = {name: store.spelled(name) for name in names}
    return {name: series for name, series in stored.items() if series in store}
