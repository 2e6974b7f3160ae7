"""Tables in memory, and files with any column names, are read by the same rules."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import forecaster as fc
from forecaster.errors import DataError, Kind, Skipped, UsageError
from tests.conftest import run
from tests.messages import refuses

DAYS = pd.date_range("2024-01-31", periods=60, name="Date")
SERIES = ("north", "south")
FIELDS = ("Close", "High", "Low", "Open", "Volume")


def wide() -> pd.DataFrame:
    """Return a frame with a column per series and the times in the index."""
    random = np.random.default_rng(0)
    values = 10 + random.normal(size=(len(DAYS), len(SERIES)))
    return pd.DataFrame(values, DAYS, list(SERIES))


def long() -> pd.DataFrame:
    """Return the same values with a row per series and time, and other column names."""
    return wide().reset_index().melt("Date", var_name="store", value_name="sales")


def downloaded(tickers=("AAPL", "OPEN")) -> pd.DataFrame:
    """Return prices in the layout of ``yfinance.download``."""
    random = np.random.default_rng(1)
    columns = pd.MultiIndex.from_product([FIELDS, tickers], names=["Price", "Ticker"])
    return pd.DataFrame(random.uniform(9, 11, (len(DAYS), len(columns))), DAYS, columns)


def unnamed(table):
    """Return the frame without names of its columns' levels."""
    table.columns.names = [None, None]
    return table


def written(form):
    return long()["Date"].dt.strftime(form)


STORES: dict[str, Any] = {"id_col": "store", "time_col": "Date", "target_col": "sales"}
WIDE: dict[str, Any] = {"wide": True}
TABLES = {
    "long": (long, STORES),
    "long, only the series named": (long, {"id_col": "store"}),
    "long, in Nixtla's names": (lambda: long().set_axis(["ds", "unique_id", "y"], axis=1), {}),
    "long, indexed": (lambda: long().set_index(["store", "Date"]), {"id_col": "store"}),
    "long, a series of pandas": (
        lambda: long().set_index(["store", "Date"])["sales"].rename_axis([None, None]), {},
    ),
    "long, indexed by a column": (lambda: long().set_index("Date", drop=False), STORES),
    "long, filtered": (lambda: pd.concat([long(), long()]).iloc[120:], {"id_col": "store"}),
    "long, text": (
        lambda: long().assign(Date=written("%d/%m/%Y"), sales=long()["sales"].astype(str)),
        {**STORES, "date_format": "%d/%m/%Y"},
    ),
    "wide": (wide, WIDE),
    "wide, without a name of the index": (lambda: wide().rename_axis(None), WIDE),
    "wide, the times in a column": (lambda: wide().reset_index(), WIDE),
    "wide, periods": (lambda: wide().to_period("D"), WIDE),
    "wide, in a time zone": (lambda: wide().tz_localize("Europe/Berlin"), WIDE),
    "pyarrow": (lambda: pa.Table.from_pandas(long(), preserve_index=False), STORES),
    "pyarrow, wide": (lambda: pa.Table.from_pandas(wide().reset_index()), WIDE),
    "pyarrow, days and decimals": (
        lambda: pa.table(
            {
                "Date": pa.array(long()["Date"].dt.date, pa.date32()),
                "store": pa.array(long()["store"]).dictionary_encode(),
                "sales": pa.array(long()["sales"]).cast(pa.decimal128(20, 15)),
            }
        ),
        STORES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_taken_as_it_is(kind):
    table, columns = TABLES[kind]
    panel = fc.load_panel(table(), **columns)
    assert panel.ids == SERIES and panel.channels == ("y",)
    assert (panel.times == DAYS.to_numpy()).all()
    np.testing.assert_allclose(panel.channel("y"), wide().to_numpy().T, rtol=1e-12)


def test_polars_is_read_through_arrow():
    polars = pytest.importorskip("polars")
    table = polars.from_arrow(pa.Table.from_pandas(long(), preserve_index=False))
    panel = fc.load_panel(table, **STORES)
    np.testing.assert_array_equal(panel.values, fc.load_panel(wide(), wide=True).values)
    with refuses(UsageError):
        fc.load_panel(table.lazy(), **STORES)


@pytest.mark.parametrize(
    "turn",
    [
        lambda table: table,
        lambda table: table.swaplevel(axis=1).sort_index(axis=1),  # group_by="ticker"
        lambda table: unnamed(table.copy()),
        lambda table: table.tz_localize("America/New_York"),
        lambda table: table.reset_index(),
    ],
)
def test_what_yfinance_downloads(turn):
    panel = fc.load_panel(turn(downloaded()))
    assert panel.ids == ("AAPL", "OPEN") and panel.target == "close"
    assert set(panel.channels) == {"close", "high", "low", "open", "volume"}
    expected = downloaded()["Close"].to_numpy().T
    np.testing.assert_array_equal(panel.channel("close"), expected)


def test_parts_of_what_yfinance_downloads():
    table = downloaded()
    closes = fc.load_panel(table["Close"])  # OPEN is a ticker here, since the columns say so
    assert closes.ids == ("AAPL", "OPEN") and closes.target == "y"
    alone = fc.load_panel(table.xs("AAPL", axis=1, level="Ticker"))
    assert alone.ids == ("Close",) and alone.target == "close" and len(alone.channels) == 5
    table[("Close", "GONE")] = np.nan
    assert fc.load_panel(table).skipped == {"GONE": Skipped(Kind.NO_NUMBER, column="close")}
    with refuses(DataError):
        fc.load_panel(unnamed(downloaded()[["Open"]]))


def test_a_target_that_is_a_price_keeps_its_transform():
    table = downloaded().xs("AAPL", axis=1, level="Ticker").assign(**{"Adj Close": 1.0})
    assert fc.load_panel(table).target == "adj_close"
    chosen = fc.load_panel(table, target_col="Close")
    assert chosen.target == "close" and "adj_close" not in chosen.channels
    assert fc.load_panel(table, target_col="Volume").target == "y"
    assert fc.load_panel(wide(), wide=True, target_col="close").target == "close"


AMBIGUOUS = [
    (lambda: long(), {}),
    (lambda: long().assign(price_2=1.0), {"id_col": "store"}),
    (lambda: long(), {"id_col": "shop"}),
    (lambda: wide().assign(third=1.0, LOW=1.0), {}),
    (lambda: wide().assign(south="closed"), WIDE),
    (lambda: long().assign(Date="2024-02-30"), STORES),
    (lambda: long().assign(Date="2024-02-28"), {**STORES, "date_format": "%d/%m/%Y"}),
    (lambda: wide().reset_index(drop=True), {}),
    (lambda: wide().assign(Date=DAYS[::-1]), {}),
    (lambda: unnamed(downloaded(("close", "OPEN"))), {}),
    (lambda: long()[["Date", "sales", "sales"]], STORES),
    (lambda: long().iloc[:0], STORES),
]


@pytest.mark.parametrize(("table", "columns"), AMBIGUOUS)
def test_what_can_be_read_in_two_ways_is_refused_in_its_own_words(table, columns):
    with refuses(DataError):
        fc.load_panel(table(), **columns)


def test_a_ticker_that_is_a_word_is_a_series_when_it_is_said():
    panel = fc.load_panel(wide().set_axis(["LOW", "Y"], axis=1), wide=True)
    assert panel.ids == ("LOW", "Y") and panel.channels == ("y",)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ([1, 2], {}),
        (long(), {"id_col": "store", "time_col": "store"}),
        (long(), {"id_col": "store", "wide": True}),
        (long(), {"date_format": "day"}),
        (long(), {"date_format": "%H:%M"}),
        ("simulated", {"id_col": "store"}),
    ],
)
def test_what_makes_no_sense_is_refused(data, options):
    with refuses(UsageError):
        fc.load_panel(data, **options)


def test_a_misspelled_argument_is_named_with_a_table_and_with_a_panel():
    frame = pd.DataFrame({"unique_id": "a", "ds": range(9), "y": range(9)})
    for data in (frame, fc.load_panel(frame)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'windows'"):
            fc.cross_validation(data, windows=3)  # pyright: ignore[reportCallIssue]


def test_predict_takes_frames(model, panel):
    frame = panel.to_frame().rename(columns={"unique_id": "symbol", "ds": "day"})
    columns: dict[str, Any] = {"time_col": "day"}
    forecast = fc.predict(model, frame, level=[80], **columns)
    pd.testing.assert_frame_equal(
        forecast.sort_values(["unique_id", "ds"], ignore_index=True),
        fc.predict(model, panel, level=[80]).sort_values(["unique_id", "ds"], ignore_index=True),
        rtol=1e-4,
    )
    with refuses(UsageError):
        fc.predict(model, panel, **columns)


def test_a_frame_saved_with_its_index(tmp_path):
    wide().rename_axis(None).to_csv(tmp_path / "a.csv")
    wide().rename_axis(None).to_parquet(tmp_path / "a.parquet")
    for ending in ("csv", "parquet"):
        panel = fc.load_panel(f"files:{tmp_path / 'a'}.{ending}", wide=True)
        assert panel.ids == SERIES and (panel.times == DAYS.to_numpy()).all()


@pytest.mark.parametrize(
    ("header", "target", "series"),
    [("date,sales,price", "sales", ("price", "sales")), ("ds,Y,temp", "Y", ("Y", "temp"))],
)
def test_columns_are_no_series_without_a_word(tmp_path, header, target, series):
    """A table with a target and what it depends on was silently read as two series."""
    rows = "".join(f"2024-01-0{day},{day},1.5\n" for day in range(1, 10))
    (tmp_path / "x.csv").write_text(f"{header}\n{rows}")
    source = f"files:{tmp_path / 'x.csv'}"
    assert fc.load_panel(source, target_col=target).ids == ("x",)
    assert fc.load_panel(source, wide=True).ids == series
    with refuses(DataError):
        fc.load_panel(source)


def test_one_column_of_a_file_is_the_series_that_the_file_is_named_after(tmp_path):
    for name in SERIES:
        wide()[name].rename("sales").to_csv(tmp_path / f"{name}.csv")
    assert fc.load_panel(f"files:{tmp_path}").ids == SERIES


def test_commands_are_told_what_the_columns_are(tmp_path):
    table = long().assign(Date=lambda t: t["Date"].dt.strftime("%d/%m/%Y")).iloc[::-1]
    table = table.rename(columns={"sales": "sales, net"})
    table.to_csv(tmp_path / "sales.csv", index=False)
    told = ["--columns", "id=store,time=Date", "--columns", "target=sales, net"]
    source = ["--source", f"files:{tmp_path / 'sales.csv'}", "--home", tmp_path / "home"]
    result = run("ingest", *source, *told, "--date-format", "%d/%m/%Y")
    assert result.exit_code == 0, result.output
    result = run("export", "--home", tmp_path / "home", "--output", tmp_path / "out.parquet")
    assert result.exit_code == 0, result.output
    panel = fc.load_panel(f"files:{tmp_path / 'out.parquet'}")
    np.testing.assert_allclose(panel.values, fc.load_panel(wide(), wide=True).values, rtol=1e-12)
    for bad in ("id", "id=", "row=store", "id=a,id=b"):
        result = run("ingest", *source, "--columns", bad)
        assert result.exit_code == 2 and "expected id=NAME, time=NAME" in result.stderr
