"""Value at risk of books that was said in the past, beside the losses that came."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, ModelError, spelled, spellings, warn
from forecaster.evaluation import RollingOrigin, beside_peers_of
from forecaster.files import Home, write_csv
from forecaster.ingest import WRONG, Store, masked_rows, panel_from_store
from forecaster.pipeline.risk_run import Risk, risk, risk_from_home
from forecaster.portfolio import ALL, NOW, Backtest, Book, backtest_risk
from forecaster.record import keep_books, recorded_books
from forecaster.series import TARGETS, Panel, show_times

RISK = "risk.csv"
"""The table of books in the folder of an evaluation."""
_HORIZONS = (1, 5)
"""The horizons that are scored, as far as a model reaches."""


def record_risk(
    home: Home, source: str, book: Path, run: Path, on_notice: Callable[[str], None]
) -> Risk:
    """Measure the risk of books by a run, and add it to the record of a source.

    Raises as :func:`forecaster.pipeline.risk_from_home` does, and WriteError.
    """
    found = risk_from_home(home, book, run=run, on_notice=on_notice)
    keep_books(home, source, _said(found).assign(run=run.name))
    return found


def recorded_risk(home: Home, source: str) -> pd.DataFrame:
    """Return what was said each morning of the books of a source, with the losses that came.

    As :func:`with_losses` does, by the prices that are stored now, without wrong ones.
    """
    said = recorded_books(home, source)
    if said.empty:
        return said.assign(at=np.nan, loss=np.nan)
    store = Store.open(home, source)
    renames = {old: new for old, new in store.index.renames.items() if old not in store}
    said = said.assign(unique_id=said["unique_id"].replace(renames))
    ids = [name for name in said["unique_id"].unique() if name in store]
    wrong = masked_rows(store, ids, WRONG)
    return with_losses(said, panel_from_store(store, ids, flagged=wrong, channels=TARGETS))


def write_past_risk(folder: Path, networks: RollingOrigin, books: list[Book]) -> None:
    """Write :func:`past_risk` and its :func:`backtests` into the folder of an evaluation."""
    rows = past_risk(networks, books)
    for name, table in (("risk_origins.csv", rows.drop(columns="at")), (RISK, backtests(rows))):
        write_csv(table, folder / name)


def past_risk(networks: RollingOrigin, books: list[Book]) -> pd.DataFrame:
    """Return the risk of books at each cutoff, by the models of then, with the losses that came.

    Cutoffs at which no position can be measured are left out. Raises ModelError where it is all.
    """
    known = spellings(networks.panel.ids)
    names = {name: spelled(known, name) for one in books for name in one.amounts}
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


def with_losses(said: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    """Return the rows of whole books with ``loss``, NaN if unknown, and ``at``, their session.

    Positions are held from their origin on. A price that is missing is the one before.
    """
    values = np.where(panel.mask, panel.channel(panel.target), np.nan)
    prices = pd.DataFrame(values.T).ffill().to_numpy()
    sessions = {time: number for number, time in enumerate(show_times(panel.times))}
    column = {name: number for number, name in enumerate(panel.ids)}
    whole = said["unique_id"] == ALL
    held = dict(list(said[~whole].groupby(["book", "origin"], sort=False)))
    totals = said[whole].assign(at=said["origin"].map(sessions), loss=np.nan)
    for key, rows in totals.groupby(["book", "origin"], sort=False):
        its = held.get(key)
        known = rows[rows["at"] + rows["horizon"] < len(prices)]  # False where NaN
        if its is None or not set(its["unique_id"]) <= column.keys():
            continue
        now, ends = known["at"].to_numpy(int), (known["at"] + known["horizon"]).to_numpy(int)
        at = [column[name] for name in its["unique_id"]]
        moves = prices[np.ix_(ends, at)] / prices[np.ix_(now, at)] - 1
        totals.loc[known.index, "loss"] = -moves @ its["value"].to_numpy(float)
    return totals.drop(columns=["unique_id", "value"])


def backtests(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how risk compares with the losses that came, a row per book, horizon and level.

    The columns are those of :class:`forecaster.portfolio.Backtest`. Of several sessions those
    periods count that do not overlap, from the first one on. Books of cash have none.

    ``rows``: of :func:`with_losses`
    """
    keys, table = ["book", "horizon", "level"], list[dict[str, Any]]()
    known = rows[rows["loss"].notna() & (rows["es"] > 0)].sort_values("at", kind="stable")
    for key, its in known.groupby(keys, sort=False):
        free, taken = -np.inf, list[bool]()
        for at in its["at"]:
            taken.append(at >= free)
            free = at + its["horizon"].iloc[0] if taken[-1] else free
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
