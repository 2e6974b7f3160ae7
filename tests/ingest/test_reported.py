"""Layouts that people have reported: each is read as it is meant, or refused with what helps."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning
from tests.messages import refuses, warns

DAYS = pd.date_range("2026-09-01", periods=9).strftime("%Y-%m-%d").tolist()


def table(header: str, *cells: str, dates: list[str] = DAYS) -> str:
    """Return a CSV of a row per date: {n} stands for its number, {d} for the date."""
    rows = [",".join(cells).format(n=n + 1, d=day) for n, day in enumerate(dates)]
    return "\n".join([header, *rows]) + "\n"


def load(folder: Path, files: dict[str, str] | str, **options: Any) -> fc.Panel:
    """Load the panel of one file or of a folder of files, by name."""
    for name, text in (files if isinstance(files, dict) else {"x.csv": files}).items():
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    source = folder / "data" if isinstance(files, dict) else folder / "data" / "x.csv"
    return fc.load_panel(f"files:{source}", mask=(), **options)


YEARS = [str(year) for year in range(1995, 2004)]
TWO = "Price,Close,Close,Volume,Volume\nTicker,AA,BB,AA,BB\nDate,,,,"
PART = table("ds,y", "{d}", "{n}")
LAST_YEAR = PART.replace("2026", "2025")
READ = {
    "year and data": (table("year,data", "{d}", "20{n}", dates=YEARS), {}, ("x",), 9),
    "a counter of rows": (
        table("id,date,value", "{n}", "{d}", "1{n}"), {"target_col": "value"}, ("x",), 9,
    ),
    "an unnamed counter": (table(",date,value", "{n}", "{d}", "1{n}"), {}, ("x",), 9),
    "values that count": (
        table("date,a,b", "{d}", "{n}", "{n}"), {"wide": True}, ("a", "b"), 9,
    ),
    "two header rows": (table(TWO, "{d}", "1.{n}", "2.{n}", "7", "8"), {}, ("AA", "BB"), 9),
    "one ticker, two header rows": (
        table("Price,Close\nTicker,AA\nDate,", "{d}", "1.{n}"), {}, ("AA",), 9,
    ),
    "a price of power": (table("datetime,price", "{d}", "-{n}"), {}, ("x",), 9),
    "keys in folders": (
        {"store=A/part-0.csv": PART, "store=B/part-0.csv": PART}, {}, ("A", "B"), 9,
    ),
    "a key that is named": (
        {"store=A/a.csv": table("item,ds,y", "milk", "{d}", "{n}")}, {"id_col": "store+item"},
        ("A/milk",), 9,
    ),
    "years and months in folders": (
        {"year=2026/month=09/x.csv": PART, "year=2025/month=09/x.csv": LAST_YEAR},
        {}, ("x",), 18,
    ),
    "a date in folders": (
        {f"date={day}/part-0.csv": "unique_id,y\nA,1\nB,2\n" for day in DAYS}, {}, ("A", "B"), 9,
    ),
    "part files of one series": (
        {"part-00000-c000.csv": PART, "part-00001-c000.csv": LAST_YEAR}, {},
        ("data",), 18,
    ),
    "milliseconds since 1970": (
        table("timestamp,value", "179081280{n}000", "{n}"), {"date_format": "ms"}, ("x",), 9,
    ),
    "Stooq's own header": (
        table("Data,Otwarcie,Najwyzszy,Najnizszy,Zamkniecie,Wolumen", "{d}", *["{n}"] * 5),
        {"time_col": "Data", "target_col": "Zamkniecie"},
        ("x",), 9,
    ),
    "a column of notes without a name": (table("date,y,", "{d}", "{n}", "note"), {}, ("x",), 9),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_it_is_read_as_it_is_meant(tmp_path, case):
    files, options, ids, rows = READ[case]
    panel = load(tmp_path, files, **options)
    assert (panel.ids, len(panel.times)) == (ids, rows)
    assert panel.mask.all() and panel.target == ("close" if "two header" in case else "y")


WRONG = {
    "a total among months": "date,y\n2021-11-30,1\n2021-12-31,2\n2021,3\n",
    "title rows": table("Sales,,\n,,\nDay,North,South", "{d}", "{n}", "{n}"),
    "dates before 1677": "date,y\n1676-01-01,1\n1676-02-01,2\n",
    "milliseconds since 1970": table("timestamp,value", "179081280{n}000", "{n}"),
    "a repeated hour": table(
        "timestamp,value", "2026-10-01 {d},{n}", dates=["01:00", "02:00", "02:00"]
    ),
    "dates under an unknown name": table("day,sales,net", "{d}", "{n}", "{n}"),
    "all columns under unknown names": table("Datum,Aktie,Kurs", "{d}", "SAP", "{n}"),
    "dates in the header": "item,d_1,d_2,d_3\nA,1,2,3\nB,1,2,3\n",
}


@pytest.mark.parametrize("case", WRONG)
def test_it_is_refused_with_what_helps(tmp_path, case):
    with refuses(DataError):
        load(tmp_path, WRONG[case])


@pytest.mark.parametrize("other", ["Cafe\u0301", "Caf\u00e9 "])
def test_names_in_two_forms_of_unicode_are_one_series(tmp_path, other):
    text = f"unique_id,ds,y\nCaf\u00e9,2026-10-01,1\n{other},2026-10-02,1\n"
    with warns(ForecasterWarning):
        assert load(tmp_path, text).ids == ("Caf\u00e9",)
