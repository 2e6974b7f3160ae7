"""What is no finite real number in a column of numbers is an error, never a row less."""

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import forecaster as fc
from forecaster.errors import DataError, NoSeries
from forecaster.series.panel.panel import Panel
from tests.messages import refuses

DAYS = pd.date_range("2024-01-01", periods=3)


def prices(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"ticker": "A", "date": DAYS, "close": [1.0, 2.0, 3.0], **columns})


def load_as(ending: str, frame: pd.DataFrame, folder: Path, **options: Any) -> Panel:
    """Load the panel of a frame, or of the file with this ending that holds it."""
    path = folder / f"x.{ending}"
    if ending == "frame":
        return fc.load_panel(frame, **options)
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    return fc.load_panel(f"files:{path}", **options)


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
@pytest.mark.parametrize(
    ("column", "written"),
    [("close", "inf"), ("adj_close", "-Infinity"), ("open", "1e400"), ("volume", "-1e999")],
)
def test_an_infinite_number_is_an_error(tmp_path, column, written, ending):
    frame = prices(**{column: ["1.5", written, "2.5"]})
    with refuses(DataError):
        load_as(ending, frame, tmp_path)
    with refuses(DataError):
        load_as("frame", frame.astype({column: float}), tmp_path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_a_column_of_numbers_as_text_is_a_series_of_a_wide_table(tmp_path, ending):
    texts = {"north": ["1.5", "", "3.5"], "currency": ["EUR"] * 3}
    frame = pd.DataFrame({"date": DAYS, "south": [1.0, 2.0, 3.0], **texts})
    assert load_as(ending, frame, tmp_path, wide=True).ids == ("north", "south")


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("kind", ["future", "static"])
def test_an_infinite_covariate_is_an_error(tmp_path, kind, ending):
    from forecaster.ingest.covariate_files import CovariateFiles

    panel = fc.load_panel(prices())
    keys = {"ds": DAYS} if kind == "future" else {"unique_id": ["A", "B", "C"]}
    table = pd.DataFrame({**keys, "x": [1.0, -np.inf, 2.0]})
    if ending == "frame":
        with refuses(DataError):
            panel.with_future(table) if kind == "future" else panel.with_static(table)
        return
    path = tmp_path / f"x.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    with refuses(DataError):
        CovariateFiles.from_paths(**{kind: path}).added_to(panel)


@pytest.mark.parametrize("column", ["close", "volume"])
def test_complex_numbers_are_refused(column):
    frame = prices(**{column: [1 + 1j, 2, 3]})
    with refuses(DataError):
        fc.load_panel(frame)
    with refuses(DataError):
        Panel.from_frame(frame)
    panel = fc.load_panel(prices())
    for add in (panel.with_future, panel.with_static):
        with refuses(DataError):
            add(pd.DataFrame({"unique_id": ["A"], "ds": DAYS[:1], "x": [1j]}))


OTHERS = {
    "durations": pd.Series(pd.to_timedelta([1, 2, 3], unit="D")),
    "times": pd.Series(DAYS),
    "periods": pd.Series(pd.period_range("2024-01-01", periods=3)),
    "intervals": pd.Series(pd.interval_range(0, 3)),
    "yes and no": pd.Series([True, False, True]),
    "yes, no, unknown": pd.Series([True, None, False], dtype="boolean"),
    "yes among numbers": pd.Series([True, 2.5, 3], dtype=object),
    "complex objects": pd.Series([1 + 1j, 2.0, 3.0], dtype=object),
    "duration objects": pd.Series([np.timedelta64(1, "D"), 2.0, 3.0], dtype=object),
    "date objects": pd.Series([DAYS[0].date()] * 3, dtype=object),
    "bytes": pd.Series([b"1", b"2", b"3"], dtype=object),
    "lists": pd.Series([[1], [2], [3]]),
    "categories": pd.Series(pd.Categorical(["low", "high", "low"])),
    "yes and no of Arrow": pd.Series([True, False, True], dtype=pd.ArrowDtype(pa.bool_())),
    "durations of Arrow": pd.Series([1, 2, 3], dtype=pd.ArrowDtype(pa.duration("s"))),
    "infinite decimals": pd.Series([decimal.Decimal("Infinity"), 2, 3], dtype=object),
    "signalling decimals": pd.Series([decimal.Decimal("sNaN"), 2, 3], dtype=object),
    "numbers too large": pd.Series([10**400, 2, 3], dtype=object),
    "numbers of 9,000 digits": pd.Series([-(10**9000), 2, 3], dtype=object),
    "percent signs": pd.Series(["12%", "13", "14"]),
    "units": pd.Series(["12 kg", "13 kg", "14 g"]),
    "currencies": pd.Series(["EUR 12", "USD 13", "12"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_number_is_not_made_one(kind):
    for column in ("close", "volume"):
        with refuses(DataError):
            fc.load_panel(prices(**{column: OTHERS[kind]}))
    with refuses(DataError):
        fc.load_panel(pd.DataFrame({"date": DAYS, "a": OTHERS[kind]}), wide=True)
    if "large" not in kind and "9,000" not in kind:
        assert fc.load_panel(prices(more=OTHERS[kind]), target_col="close").mask.sum() == 3


@pytest.mark.parametrize(
    "numbers",
    [
        pd.Series([1.5, 2.5, 3.5], dtype="category"),
        pd.Series(["1.5", "2.5", "3.5"], dtype="category"),
        pd.Series([decimal.Decimal("1.5"), decimal.Decimal("2.5"), 3.5], dtype=object),
        pd.Series([1.5, "2.5", np.float32(3.5)], dtype=object),
        pd.Series([1.5, 2.5, 3.5], dtype="Float64"),
        pd.Series(
            [decimal.Decimal(f"{n}.5") for n in (1, 2, 3)], dtype=pd.ArrowDtype(pa.decimal128(9, 2))
        ),
        pd.Series(pd.arrays.SparseArray([1.5, 2.5, 3.5])),
    ],
)
def test_numbers_of_any_kind_are_numbers(numbers):
    assert fc.load_panel(prices(close=numbers)).channel("close").tolist() == [[1.5, 2.5, 3.5]]


@pytest.mark.parametrize("name", ["Currency", "ccy", "unit"])
@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_one_series_has_one_currency(tmp_path, ending, name):
    with refuses(DataError):
        load_as(ending, prices(**{name: ["EUR", "EUR", "USD"]}), tmp_path)
    each = pd.concat(
        [prices(**{name: "EUR"}), prices(ticker="B", **{name: ["USD", None, "USD"]})],
        ignore_index=True,
    )
    panel = load_as(ending, each, tmp_path)
    assert panel.ids == ("A", "B") and panel.channels == ("close",)


@pytest.mark.parametrize("empties", [[pd.NaT] * 3, [pd.NaT, None, pd.NA], [None, None, pd.NaT]])
def test_a_column_of_missing_times_holds_no_numbers(empties):
    nothing = pd.Series(empties, dtype=object)
    volume = fc.load_panel(prices(volume=nothing)).channel("volume")
    assert np.isnan(volume).all()
    with refuses(NoSeries):
        fc.load_panel(prices(close=nothing))


def test_files_of_one_series_have_one_currency(tmp_path):
    prices(currency="EUR").to_csv(tmp_path / "2024.csv", index=False)
    later = prices(currency="USD").assign(date=DAYS + pd.Timedelta(366, "D"))
    pd.concat([later, prices(ticker="B")]).to_csv(tmp_path / "2025.csv", index=False)
    panel = fc.load_panel(f"files:{tmp_path}")
    assert panel.ids == ("B",)
    assert "its parts disagree: the currency of some is 'EUR', of others 'USD'" in str(
        panel.skipped["A"]
    )


WIDE = pd.DataFrame({"date": DAYS, "a": [1.0, 2, 3], "b": [1.0, 2, 3]})


@pytest.mark.parametrize(
    ("frame", "options"),
    [
        (prices(change=[np.nan, np.inf, -np.inf]), {}),  # infinite, and not learned from
        (WIDE[["date"]].assign(ccy="EUR"), {"wide": True}),  # nothing but a currency
    ],
)
def test_other_columns_are_errors_too(frame, options):
    with refuses(DataError):
        fc.load_panel(frame, **options)


@pytest.mark.parametrize(
    ("ending", "name", "one", "other"),
    [("csv", "Currency Code", "GBP", "GBp"), ("frame", "UNIT", "kWh", "MWh")],
)
def test_a_wide_table_has_one_currency(tmp_path, ending, name, one, other):
    panel = load_as(ending, WIDE.assign(**{name: [one, None, one]}), tmp_path, wide=True)
    assert panel.ids == ("a", "b") and panel.mask.all() and not panel.skipped
    with refuses(DataError):
        load_as(ending, WIDE.assign(**{name: [one, one, other]}), tmp_path, wide=True)


def test_units_that_are_numbers_are_a_column_like_others():
    frame = prices(units=[5, 6, 7])
    assert fc.load_panel(frame).channel("units").tolist() == [[5.0, 6.0, 7.0]]
    assert fc.load_panel(frame, target_col="units").mask.sum() == 3
    wide = pd.DataFrame({"date": DAYS, "a": [1.0, 2, 3], "UNIT": ["1,5", "2,5", "3,5"]})
    assert fc.load_panel(wide, wide=True).ids == ("UNIT", "a")
