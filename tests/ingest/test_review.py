"""A store is reviewed some series at a time."""

import numpy as np
import pandas as pd
import pytest

from forecaster.files import Home
from forecaster.ingest import Store
from forecaster.ingest.review import review as review_module
from forecaster.ingest.review.quality import find_flags
from forecaster.ingest.review.review import in_parts, review
from forecaster.series import Panel
from tests.ingest.older import written
from tests.markets import SESSIONS, Fault, market

PRICES = ["open", "high", "low", "close"]
KINDS = ("copy", "equals", "spike", "jump", "still", "again", "copies", "spike", "gap")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Twelve stocks with faults of each kind, one of them damaged on disk, and one of no dates."""
    faults: list[Fault] = [(kind, k, 92 + 7 * k, 3) for k, kind in enumerate(KINDS)]
    frame = market(faults, 12, 3).frame()
    for name in frame["unique_id"].unique()[2:9]:  # copies that many have on a day, without volumes
        own = frame["unique_id"] == name
        day, source = own & (frame["ds"] == SESSIONS[60]), own & (frame["ds"] == SESSIONS[64])
        if day.any() and source.any():
            frame.loc[day, PRICES] = frame.loc[source, PRICES].to_numpy()
    home = Home(tmp_path_factory.mktemp("review"))
    store = Store.open(home, "files")
    with store.locked():
        for name, rows in frame.groupby("unique_id"):
            rows = rows.drop(columns="unique_id").reset_index(drop=True)
            written(store, str(name), rows.drop(columns="volume") if name == "s10" else rows)
        written(store, "counted", pd.DataFrame({"ds": np.arange(50), "close": np.arange(50.0)}))
        store.commit()
    damaged = store.folder / store.index.series["s11"].file
    damaged.write_bytes(damaged.read_bytes()[:-3])
    return home


def reviewed(home):
    (store,) = Store.all_of(home)
    with store.locked():
        review(store)
    return store.flags(), store.index.counts


def test_a_large_store_is_reviewed_in_parts_that_later_series_do_not_change(home, monkeypatch):
    flags, _ = reviewed(home)
    assert {"copied", "reversed", "jump", "frozen"} <= set(flags["flag"]), flags[
        "flag"
    ].value_counts()
    monkeypatch.setattr(review_module, "AT_A_TIME", 5)
    parts = [list(part) for part in in_parts(list("abcdefghijklmn"))]
    assert parts == [list("abcde"), list("fghijklmn")] and list(in_parts([])) == [[]]
    again, counts = reviewed(home)
    (store,) = Store.all_of(home)
    for part in in_parts(store.ids):
        alone = find_flags(Panel.from_arrays(store.read_arrays(part)[0]))
        found = again[again["unique_id"].isin(part)].reset_index(drop=True)
        pd.testing.assert_frame_equal(found, alone, check_dtype=False)
    assert counts.keys() == set(store.ids) - {"counted", "s11"}
