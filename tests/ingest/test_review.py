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
from tests.markets import Fault, market

KINDS = ("copy", "equals", "spike", "jump", "still", "again", "copies", "spike", "gap")


@pytest.fixture
def store(tmp_path) -> Store:
    """Twelve stocks with faults of each kind, one of them damaged on disk, and one of no dates."""
    faults: list[Fault] = [(kind, k, 92 + 7 * k, 3) for k, kind in enumerate(KINDS)]
    store = Store.open(Home(tmp_path), "files")
    with store.locked():
        for name, rows in market(faults, 12, 3).frame().groupby("unique_id"):
            written(store, str(name), rows.drop(columns="unique_id").reset_index(drop=True))
        written(store, "counted", pd.DataFrame({"ds": np.arange(50), "close": np.arange(50.0)}))
        store.commit()
    damaged = store.folder / store.index.series["s11"].file
    damaged.write_bytes(damaged.read_bytes()[:-3])
    return store


def test_a_large_store_is_reviewed_in_parts_that_later_series_do_not_change(store, monkeypatch):
    monkeypatch.setattr(review_module, "AT_A_TIME", 5)
    parts = [list(part) for part in in_parts(list("abcdefghijklmn"))]
    assert parts == [list("abcde"), list("fghijklmn")] and list(in_parts([])) == [[]]
    with store.locked():
        review(store)
    flags = store.flags()
    assert {"copied", "reversed", "jump", "frozen"} <= set(flags["flag"])
    for part in in_parts(store.ids):
        alone = find_flags(Panel.from_arrays(store.read_arrays(part)[0]))
        found = flags[flags["unique_id"].isin(part)].reset_index(drop=True)
        pd.testing.assert_frame_equal(found, alone, check_dtype=False)
    assert store.index.counts.keys() == set(store.ids) - {"counted", "s11"}
