"""Series that several columns name together, such as a store and an item."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, UsageError
from forecaster.ingest import Columns, CovariateFiles
from tests.messages import refuses

DAYS = pd.date_range("2024-01-01", periods=40)
PAIRS = [(store, item) for store in ("S01", "S02") for item in ("milk", "soap")]
NAMES = ("S01/milk", "S01/soap", "S02/milk", "S02/soap")


def retail() -> pd.DataFrame:
    """Return sales by store and item, the rows by day, with a further column of text."""
    rng = np.random.default_rng(0)
    rows = [(store, item, day, "sunny") for day in DAYS for store, item in PAIRS]
    frame = pd.DataFrame(rows, columns=["store", "item", "day", "weather"])
    return frame.assign(sales=rng.poisson(20, len(rows)).astype(float))


def expected(panel: fc.Panel) -> None:
    assert panel.ids == NAMES and panel.channels == ("y",) and len(panel.times) == len(DAYS)
    sales = retail()
    its = sales[(sales["store"] == "S02") & (sales["item"] == "milk")]["sales"]
    np.testing.assert_array_equal(panel.values[NAMES.index("S02/milk"), :, 0], its)


@pytest.mark.parametrize("id_col", [["store", "item"], ("store", "item"), "store+item"])
def test_a_frame_joins_columns(id_col):
    expected(fc.load_panel(retail(), id_col=id_col, time_col="day", target_col="sales"))
    forecast = fc.Forecaster(horizon=3, model="ets").fit(
        retail(), id_col=["store", "item"], target_col="sales"
    ).predict()  # fmt: skip
    assert tuple(forecast["unique_id"].unique()) == NAMES


def test_numbers_and_blanks_around_names_are_joined_as_text(tmp_path):
    numbered = retail().assign(store=lambda sales: sales["store"].str[2:].astype(int))
    assert fc.load_panel(numbered, id_col=["store", "item"], target_col="sales").ids[0] == "1/milk"
    padded = retail().assign(item=lambda sales: " " + sales["item"] + " ")
    expected(fc.load_panel(padded, id_col=["store", "item"], target_col="sales"))
    (tmp_path / "s.csv").write_text("store,item,day,sales\n01,a,2024-01-01,3\n01,a,2024-01-02,4\n")
    names = {"id_col": ["store", "item"], "time_col": "day"}
    panel = fc.load_panel(f"files:{tmp_path / 's.csv'}", **names, mask=())
    assert panel.ids == ("01/a",)  # digits stay as they are written


def test_a_column_whose_own_name_has_a_plus_is_one_column():
    plain = retail().assign(**{"a+b": lambda sales: sales["store"] + sales["item"]})
    panel = fc.load_panel(plain, id_col="a+b", time_col="day", target_col="sales")
    assert panel.ids[0] == "S01milk"


def test_covariate_files_join_the_same_columns(tmp_path):
    plan = retail().drop(columns=["sales", "weather"]).assign(promo=1.0)
    plan.to_csv(tmp_path / "plan.csv", index=False)
    static = pd.DataFrame(PAIRS, columns=["store", "item"]).assign(size=[1.0, 2.0, 3.0, 4.0])
    static.to_csv(tmp_path / "static.csv", index=False)
    columns = Columns.of({"id_col": ["store", "item"], "time_col": "day"})
    files = CovariateFiles.of(tmp_path / "plan.csv", tmp_path / "static.csv", columns)
    panel = files.added_to(fc.load_panel(retail(), id_col="store+item", target_col="sales"))
    assert panel.future is not None and panel.static is not None
    by_name = {"unique_id": list(NAMES), "size": [1.0, 2.0, 3.0, 4.0]}
    apart = panel.with_static(pd.DataFrame(by_name)).static
    assert apart is not None and repr(panel.static) == repr(apart)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id_col": "item"},
        {"id_col": ["store", "shop"]},
    ],
)  # fmt: skip
def test_columns_that_name_the_series_have_to_be_named(options):
    with refuses(DataError):
        fc.load_panel(retail(), time_col="day", target_col="sales", **options)


@pytest.mark.parametrize("id_col", [[], ["store", 3], ["store", "a+b"], ["store", "store"]])
def test_names_that_cannot_be_joined_are_refused(id_col):
    with pytest.raises(UsageError):
        fc.load_panel(retail(), id_col=id_col, target_col="sales")


def test_two_series_that_would_have_the_same_name_are_an_error():
    days = pd.date_range("2024-01-01", periods=10)
    table = pd.DataFrame({"ds": days, "y": np.arange(10.0)})
    table["store"], table["item"] = ["a/b"] * 5 + ["a"] * 5, ["c"] * 5 + ["b/c"] * 5
    with refuses(DataError):
        fc.load_panel(table, id_col=["store", "item"])
