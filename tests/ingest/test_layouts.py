"""Tables of many layouts, and series named by several columns."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.errors import DataError, ForecasterError, UsageError
from forecaster.files import Home
from forecaster.ingest import Columns, CovariateFiles, load_panel, open_source
from forecaster.ingest.tables.file_reader import read_series
from tests.conftest import prices
from tests.messages import refuses

DOWNLOADS = {
    "AAPL.csv": "Date,Open,High,Low,Close,Adj Close,Volume\n"
    "2024-03-27,170.41,173.60,170.11,173.31,172.83,60273300\n"
    "2024-03-28,171.75,172.23,170.51,171.48,171.00,65672700\n",  # Yahoo
    "aapl.us.txt": "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>\n"
    "AAPL.US,D,20240327,000000,170.41,173.60,170.11,173.31,60273300,0\n"
    "AAPL.US,D,20240328,000000,171.75,172.23,170.51,171.48,65672700,0\n",  # Stooq, all history
    "nasdaq/AAPL.csv": "Date,Close/Last,Volume,Open,High,Low\n"
    "03/28/2024,$171.48,65672700,$171.75,$172.23,$170.51\n"
    "03/27/2024,$173.31,60273300,$170.41,$173.60,$170.11\n",
    "alpha/AAPL.csv": "timestamp,open,high,low,close,adjusted_close,volume,dividend_amount\n"
    "2024-03-28,171.75,172.23,170.51,171.48,171.00,65672700,0.0\n"
    "2024-03-27,170.41,173.60,170.11,173.31,172.83,60273300,0.0\n",
    "investing/AAPL.csv": '"Date","Price","Open","High","Low","Vol.","Change %"\n'
    '"03/28/2024","171.48","171.75","172.23","170.51","65.6727M","-1.06%"\n'
    '"03/27/2024","173.31","170.41","173.60","170.11","60.2733M","2.12%"\n',
    "kaggle.csv": "date,open,high,low,close,volume,Name\n"
    "2024-03-27,170.41,173.60,170.11,173.31,60273300,AAPL\n"
    "2024-03-28,171.75,172.23,170.51,171.48,65672700,AAPL\n",
}
DAYS = pd.date_range("2024-01-01", periods=40)
PAIRS = [(store, item) for store in ("S01", "S02") for item in ("milk", "soap")]
NAMES = ("S01/milk", "S01/soap", "S02/milk", "S02/soap")


@pytest.mark.parametrize("name", DOWNLOADS)
def test_downloads_are_read(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(DOWNLOADS[name])
    columns = Columns(date_format="%m/%d/%Y") if "03/28" in DOWNLOADS[name] else Columns()
    (frame,) = read_series(path, columns=columns).values()
    assert frame["unique_id"].tolist() == ["AAPL"] * 2
    assert frame["ds"].astype(str).tolist() == ["2024-03-27", "2024-03-28"]
    got = frame[["open", "high", "low", "close", "volume"]].to_numpy()
    np.testing.assert_allclose(
        got, [[170.41, 173.6, 170.11, 173.31, 60273300], [171.75, 172.23, 170.51, 171.48, 65672700]]
    )
    if "Adj" in DOWNLOADS[name] or "adjusted" in DOWNLOADS[name]:
        assert frame["adj_close"].tolist() == [172.83, 171.0]
    if name.endswith(".txt"):
        (tmp_path / "notes.txt").write_text("not prices")
        assert open_source(f"files:{tmp_path}").tickers() == ["AAPL"]


@pytest.mark.parametrize(
    ("clocks", "read"),
    [
        (["09:30", "10:30"], ["09:30:00", "10:30:00"]),
        (["09:30:00.000", "10:30:00.500"], ["09:30:00.000", "10:30:00.500"]),
        (["23:00", "24:00"], ["23:00:00", "24:00:00"]),
        (["093000", "103000"], ["09:30:00", "10:30:00"]),  # Stooq's, in a column <TIME>
    ],
)
def test_times_of_day_in_a_column_of_their_own(tmp_path, clocks, read):
    name = "time" if ":" in clocks[0] else "<TIME>"
    table = pd.DataFrame({"date": "2024-03-28", name: clocks, "close": [1.0, 2.0]})
    table.to_csv(tmp_path / "x.csv", index=False)
    (frame,) = read_series(tmp_path / "x.csv").values()
    clock = frame["ds"] - pd.Timestamp("2024-03-28")
    assert clock.tolist() == pd.to_timedelta(read).tolist()


def test_a_part_of_a_folder_that_cannot_be_read_shortens_nothing(tmp_path):
    from forecaster.ingest import ingest
    from tests.conftest import prices

    data = tmp_path / "data"
    data.mkdir()
    whole = prices("AAA", 500)
    for year, part in whole.groupby(whole["date"].str[:4]):
        part.to_csv(data / f"{year}.csv", index=False)
    store = ingest(Home(tmp_path / "home"), open_source(f"files:{data}"), None).store
    assert store.index.series["AAA"].rows == 500
    (data / "2020.csv").write_text("no table\n")
    arrived = ingest(Home(tmp_path / "home"), open_source(f"files:{data}"), ["AAA"])
    assert "a file that cannot be read" in arrived.stale["AAA"]
    assert arrived.store.index.series["AAA"].rows == 500


def test_a_file_that_does_not_fit_into_memory_is_refused_unread(tmp_path, monkeypatch):
    prices("AAA", 300).to_parquet(tmp_path / "p.parquet", index=False)
    monkeypatch.setattr("forecaster.ingest.tables.file_reader.free_memory", lambda: 10_000)
    with refuses(DataError):
        read_series(tmp_path / "p.parquet")


cells = st.one_of(
    st.sampled_from(["", "AAPL", "../../x", "CON", "a/b", "\x00", "2024-03-28", "1.5", "-1",
                     "1e999", "nan", "NaT", '"', ",", ";", "\t", "\r", "=1+1", "date", "close",
                     "A" * 10_000]),
    st.text(max_size=20),
)  # fmt: skip


tables = st.lists(st.lists(cells, max_size=6), min_size=1, max_size=6).map(
    lambda rows: "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(raw=st.one_of(tables, st.binary(max_size=400)))
def test_any_file_is_read_or_refused_with_one_clear_error(tmp_path, raw):
    for name in ("any.csv", "any.parquet", "any.csv.gz"):
        (tmp_path / name).write_bytes(raw)
        with contextlib.suppress(ForecasterError):
            for series, frame in read_series(tmp_path / name).items():
                assert series.strip() and len(frame) and set(frame["unique_id"]) == {series}


def long(**columns) -> pd.DataFrame:
    days = pd.date_range("2024-01-01", periods=4).strftime("%Y-%m-%d")
    return pd.DataFrame({"unique_id": "A", "ds": days, "y": [1.0, 2.0, 4.0, 3.0], **columns})


@pytest.mark.parametrize("numbers", [[12, 15, 9, 10], [930, 1015, 930, 1015], [0, 0, 0, 0]])
def test_numbers_called_time_are_numbers(numbers):
    panel = load_panel(long(time=numbers))
    assert (panel.times == panel.times.astype("M8[D]")).all()  # no time of day
    assert panel.channel("time").tolist() == [numbers]


CLOCKS = (["09:30", ""], ["09:30", "noon"], ["9:30", "25:00"], ["9:30 AM", "13:30 PM"])


@pytest.mark.parametrize(
    "text",
    [
        # Without a header, where no row may be lost.
        "2024-01-02,1.5\n2024-01-03,1.6\n",
        "AAPL,2024-01-02,1.5\nAAPL,2024-01-03,1.6\n",
        "2024-01-02,$100.13\n2024-01-03,$100.20\n",
        "2024Q1,0\n2024Q2,3\n",
        # Times of day of some rows alone.
        *(f"date,time,close\n2024-01-02,{a},1\n2024-01-03,{b},2\n" for a, b in CLOCKS),
    ],
)
def test_a_file_without_a_header_or_times_of_day_loses_no_row(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with refuses(DataError):
        read_series(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        ({"price": [1, 2, 3, 4]}, "y"),  # of power, say, which is no stock
        ({"price": [1, 2, 3, 4], "high": 5.0}, "close"),
        ({"price": [1, 2, 3, 4], "volume": 5.0}, "close"),
    ],
)
def test_a_price_is_a_stocks_beside_other_columns_of_prices(columns, target):
    assert load_panel(long(**columns).drop(columns="y")).target == target


@pytest.mark.parametrize("column", ["ds", "y"])
def test_a_long_cell_is_quoted_in_part(column):
    table = long().astype({"y": object})
    table.loc[2, column] = "x" * 900_000
    with refuses(DataError) as error:
        load_panel(table)
    assert len(str(error.value)) < 500


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
    columns = Columns.from_options({"id_col": ["store", "item"], "time_col": "day"})
    files = CovariateFiles.from_paths(tmp_path / "plan.csv", tmp_path / "static.csv", columns)
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
