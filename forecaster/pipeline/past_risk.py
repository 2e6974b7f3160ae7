"""Value at risk of books that was said in the past, beside the losses that came."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, ModelError, listed, spelled, spellings, warn
from forecaster.evaluation import RollingOrigin, beside_peers_of
from forecaster.files import Home, write_csv
from forecaster.ingest import WRONG, Store, masked_rows, panel_from_store
from forecaster.pipeline.risk_run import Risk, risk
from forecaster.portfolio import ALL, NOW, Backtest, Book, backtest_risk
from forecaster.record import keep_books, order_of, recorded_books
from forecaster.series import TARGETS, Panel, show_time

RISK = "risk.csv"
"""The table of books in the folder of an evaluation."""
_HORIZONS = (1, 5)
"""The horizons that are scored, as far as a model reaches."""


def record_risk(home: Home, source: str, found: Risk, run: str) -> None:
    """Add what a run says of the risk of books to the record of a source.

    Raises WriteError, and DataError for a record that cannot be read.
    """
    keep_books(home, source, _said(found).assign(run=run))


def recorded_risk(home: Home, source: str) -> pd.DataFrame:
    """Return what was said each morning of the books of a source, with the losses that came.

    As :func:`with_losses` does, by the prices that are stored now, without wrong ones.
    """
    said = recorded_books(home, source)
    nothing = said.iloc[:0].assign(ends=None, loss=np.nan)
    if said.empty:
        return nothing
    store = Store.open(home, source)
    renames = {old: new for old, new in store.index.renames.items() if old not in store}
    said = said.assign(unique_id=said["unique_id"].replace(renames))
    ids = [name for name in said["unique_id"].unique() if name in store]
    if not ids:
        return nothing
    wrong = masked_rows(store, ids, WRONG)
    return with_losses(said, panel_from_store(store, ids, flagged=wrong, channels=TARGETS))


def write_past_risk(folder: Path, networks: RollingOrigin, books: list[Book]) -> None:
    """Write :func:`past_risk` and its :func:`backtests` into the folder of an evaluation."""
    rows = past_risk(networks, books)
    for name, table in (("risk_origins.csv", rows), (RISK, backtests(rows))):
        write_csv(table, folder / name)


def past_risk(networks: RollingOrigin, books: list[Book]) -> pd.DataFrame:
    """Return the risk of books at each cutoff, by the models of then, with the losses that came.

    Cutoffs at which no position can be measured are left out. Raises ModelError where it is all.
    """
    names = positions_in(networks.panel, books)
    wanted = {*names.values(), *networks.config.indices}
    if lacking := [name for name, there in names.items() if there is None]:
        warn(f"not in the evaluation, and left out of the books: {', '.join(lacking)}")
    panel = networks.panel.only([name for name in networks.panel.ids if name in wanted])
    steps = [step for step in _HORIZONS if step <= networks.config.horizon]
    said, why = list[pd.DataFrame](), ModelError("no position of a book in the evaluation")
    for model, cutoffs in networks.parts:
        beside = beside_peers_of(model, panel)
        for time in panel.times[cutoffs]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ForecasterWarning)
                try:
                    said.append(_said(risk(model, beside.until(time), books, horizon=steps)))
                except ModelError as error:
                    why = error
    if not said:
        raise why
    keys = ["book", "origin", "unique_id", "horizon", "level"]
    return with_losses(pd.concat(said, ignore_index=True).drop_duplicates(keys), panel)


def positions_in(panel: Panel, books: list[Book]) -> dict[str, str | None]:
    """Return the series of each position of books, None for one that the panel lacks.

    Raises ModelError where none can be measured.
    """
    if panel.target == "y":
        raise ModelError("a book needs prices; these series have the column y. Take `close`")
    known = spellings(panel.ids)
    names = {name: spelled(known, name) for one in books for name in one.amounts}
    if not any(names.values()):
        raise ModelError(f"book: none of {listed(names)} is among the {len(panel.ids)} series")
    return names


def with_losses(said: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    """Return the rows of whole books with ``loss`` and the time at which it ``ends``.

    Positions are held from their origin on, each over as many sessions of its own, as in the paths.
    NaN and None until all have had them.
    """
    times = {show_time(time): time for time in panel.times}
    prices = panel.channel(panel.target)
    series = {
        name: (panel.times[panel.mask[row]], prices[row, panel.mask[row]])
        for row, name in enumerate(panel.ids)
    }
    whole = said["unique_id"] == ALL
    held = dict(list(said[~whole].groupby(["book", "origin"], sort=False)))
    totals = said[whole].assign(ends=None, loss=np.nan)
    for (book, origin), rows in totals.groupby(["book", "origin"], sort=False):
        its, since = held.get((book, origin)), times.get(str(origin))
        if its is None or since is None or not set(its["unique_id"]) <= series.keys():
            continue
        positions = [
            (series[name], np.searchsorted(series[name][0], since, side="right") - 1, value)
            for name, value in zip(its["unique_id"], its["value"].astype(float), strict=True)
        ]
        for row, step in rows["horizon"].astype(int).items():
            if any(at < 0 or at + step >= len(own) for (own, _), at, _ in positions):
                continue
            totals.at[row, "ends"] = show_time(max(own[at + step] for (own, _), at, _ in positions))
            totals.at[row, "loss"] = -sum(
                value * (own[at + step] / own[at] - 1) for (_, own), at, value in positions
            )
    return totals.drop(columns=["unique_id", "value"])


def backtests(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how risk compares with the losses that came, a row per book, horizon and level.

    The columns are those of :class:`forecaster.portfolio.Backtest`. Of several sessions those
    periods count that do not overlap, from the first one on. Books of cash have none.

    ``rows``: of :func:`with_losses`
    """
    keys, table = ["book", "horizon", "level"], list[dict[str, Any]]()
    known = rows[rows["loss"].notna() & (rows["es"] > 0)]
    known = known.sort_values("origin", key=lambda times: times.map(order_of), kind="stable")
    for key, its in known.groupby(keys, sort=False):
        free, taken = "", list[bool]()
        for origin, ends in zip(its["origin"], its["ends"], strict=True):
            taken.append(not free or order_of(origin) >= order_of(free))
            free = ends if taken[-1] else free
        its = its[taken]
        scores = backtest_risk(its["loss"], its["var"], its["es"], float(its["level"].iloc[0]))
        table.append(dict(zip(keys, key, strict=True)) | scores._asdict())
    return pd.DataFrame(table, columns=[*keys, *Backtest._fields])


def _said(found: Risk) -> pd.DataFrame:
    """Return what is recorded of a measured risk: totals by horizon and level, and positions."""
    frame = found.frame[found.frame["scenario"] == NOW]
    whole = frame["unique_id"] == ALL
    totals = frame[whole & frame["horizon"].isin(_HORIZONS)]
    positions = frame[~whole].drop_duplicates(["book", "unique_id"])[["book", "unique_id", "value"]]
    columns = ["book", "unique_id", "value", "horizon", "level", "var", "es"]
    said = pd.concat([totals, positions], ignore_index=True)[columns]
    return said.assign(origin=found.since)
