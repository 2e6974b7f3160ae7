"""A store reviewed some series at a time has the flags and gaps of one reviewed in one piece."""

import numpy as np
import pandas as pd
import pytest

from forecaster.home import Home
from forecaster.ingest import Store
from forecaster.ingest.review import review as review_parts
from forecaster.ingest.review.review import review
from forecaster.series import Panel
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
            store.write(str(name), rows.drop(columns="volume") if name == "s10" else rows)
        store.write("counted", pd.DataFrame({"ds": np.arange(50), "close": np.arange(50.0)}))
        store.commit()
    damaged = store.folder / store.index.series["s11"].file
    damaged.write_bytes(damaged.read_bytes()[:-3])
    return home


def reviewed(home):
    (store,) = Store.all_of(home)
    with store.locked():
        review(store)
    assert store.is_reviewed
    return store.flags(), store.index.counts


def test_parts_do_not_matter(home, monkeypatch):
    monkeypatch.setattr("forecaster.ingest.review.review.AT_A_TIME", 10**6)
    flags, counts = reviewed(home)
    assert {"copied", "reversed", "jump", "frozen"} <= set(flags["flag"]), flags[
        "flag"
    ].value_counts()
    held = []
    from_arrays = Panel.from_arrays

    def watched(series, *rest, **options):
        held.append(len(series))
        return from_arrays(series, *rest, **options)

    monkeypatch.setattr(Panel, "from_arrays", staticmethod(watched))
    for size in (1, 5):
        monkeypatch.setattr("forecaster.ingest.review.review.AT_A_TIME", size)
        monkeypatch.setattr(review_parts, "AT_A_TIME", size)
        monkeypatch.setattr(review_parts, "_BLOCK_BYTES", 1_000)
        held.clear()
        again, its = reviewed(home)
        pd.testing.assert_frame_equal(flags, again, check_exact=True)
        assert its == counts and max(held) == size
    assert not list(home.prices.glob("*/.tmp-*"))


def test_later_series_may_have_columns_that_the_first_ones_lack(tmp_path, monkeypatch):
    frame = market([("jump", 1, 90, 3)], 4, 3).frame()
    columns = {"s00": ["ds", "volume"], "s01": ["ds", "close"], "s02": ["ds", "close", "volume"]}
    store = Store.open(Home(tmp_path), "files")
    with store.locked():
        for name, rows in frame.groupby("unique_id"):
            rows = rows.reset_index(drop=True)
            store.write(str(name), rows[columns.get(str(name), ["ds", *PRICES])])
        store.commit()
    monkeypatch.setattr("forecaster.ingest.review.review.AT_A_TIME", 10**6)
    whole = reviewed(Home(tmp_path))
    monkeypatch.setattr("forecaster.ingest.review.review.AT_A_TIME", 1)
    flags, counts = reviewed(Home(tmp_path))
    pd.testing.assert_frame_equal(flags, whole[0], check_exact=True)
    assert counts == whole[1] and "jump" in set(flags["flag"])
