"""Read the stored prices that a saved model forecasts from."""

from collections.abc import Iterable, Sequence

from forecaster.errors import ModelError
from forecaster.forecasting import Model
from forecaster.home import Home
from forecaster.ingest import Date, Store, masked_rows, panel_from_store
from forecaster.series import Panel, show_time
from forecaster.skipped import Kind, Skipped
from forecaster.storage.runs.request import ids_to_read


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
