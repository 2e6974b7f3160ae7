"""Layouts that people have reported: each is read as it is meant, or refused with what helps."""

import io
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning, UsageError, near
from forecaster.ingest import parse_columns
from forecaster.ingest.groups import read_groups
from tests.conftest import run
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
        table("id,date,value", "{n}", "{d}", "1{n}"), {}, ("x",), 9,
    ),
    "R's counter beside years": (
        table('"",time,y', '"{n}"', "{d}", "{n}", dates=YEARS), {}, ("x",), 9,
    ),
    "a river": (table("year,volume", "{d}", "{n}", dates=YEARS), {}, ("x",), 9),
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


HOURS = ["01:00", "02:00", "02:00", "03:00", "04:00", "05:00"]
EPOCH = pd.date_range("2026-10-01", periods=9, freq="h").as_unit("s").astype(int)
# Each is refused, and read with any of the options that the error names.
REFUSED = {
    "totals of years among months": "date,y\n2021-11-30,1\n2021-12-31,2\n2021,3\n2022,4\n",
    "a footnote below the table": "date,y\n2021-11-30,1\n2021-12-31,2\n\"Source: here, there\",\n",
    "a total without a date": table("date,y", "{d}", "{n}") + ",45\n",
    "dates before 1677": "date,y\n1676-01-01,1\n1678-01-01,2\n1678-02-01,3\n",
    "a date that means never": table("date,y", "{d}", "{n}") + "9999-12-31,0\n",
    **{
        f"{unit} since 1970": table("timestamp,value", "{d}", "{n}", dates=[
            f"{second}{zeros}" for second in EPOCH])
        for unit, zeros in (("s", ""), ("ms", "000"), ("us", "0" * 6), ("ns", "0" * 9))
    },
    "days of a spreadsheet": table("date,y", "4529{n}", "{n}"),
    "a counter before dates of another name": table(",month,y", "{n}", "{d}", "1{n}"),
    "a counter alone": table(",y", "{n}", "1{n}"),
    "years as fractions": table("year,y", "{d}.0", "{n}", dates=YEARS),
    "days of years": table("date,y", "202406{n}", "{n}"),
    "weeks without a letter": "date,y\n202152,1\n202153,2\n202201,3\n",
    "days and months without a sign": "date,y\n01022022,1\n02022022,2\n",
    "months in full": table("ds,y", '"August {n}, 2021"', "{n}"),
    "dates of Nasdaq": table("Date,Close/Last,Volume", "09/1{n}/2026", "${n}.48", "656727"),
    "a date before a time with AM": table("date,time,close", "2026-09-0{n}", "9:30 AM", "{n}"),
    "years of two digits": table("date,y", "0{n}-Jan-24", "{n}"),
    "month and day alike": table("date,y", "0{n}/02/2024", "{n}"),
    "month and day alike, hours": table("date,y", "0{n}/02/2024 10:00", "{n}"),
    "a thousand or one": "date;y\n2024-01-01;1,234\n2024-01-02;2,345\n",
    "a mark of its own": table("date,y", "{d}", "{n}") + "2026-09-10,n/a?\n2026-09-11,closed\n",
    "a mark with a comma": table("date,y", "{d}", "{n}") + '2026-09-10,"closed, all day"\n',
    "a closed shop of several": table("date,y,z", "{d}", "{n}", "{n}").replace("9,9", "9,closed"),
    "two columns of one meaning": table("ds,date,y", "{d}", "{d}", "{n}"),
    "two currencies": "date,y,unit\n2026-09-01,1,EUR\n2026-09-02,2,EUR\n2026-09-03,3,USD\n",
    "two currencies of a series": "ticker,date,y,ccy\nA,2026-09-01,1,EUR\nA,2026-09-02,2,USD\n",
    "two targets": table("date,sales,net", "{d}", "{n}", "{n}"),
    "dates under an unknown name": table("day,sales,net", "{d}", "{n}", "{n}"),
    "all columns under unknown names": table("Datum,Aktie,Kurs", "{d}", "SAP", "{n}"),
    "series under an unknown name": table("date,store,y", "{d}", "A", "{n}")
    + table("date,store,y", "{d}", "B", "{n}").split("\n", 1)[1],
    "series under two unknown names": "date,my store,item,y\n" + "".join(
        f"2026-09-01,{store},{item},1\n" for store in "AB" for item in "CD"),
    "a date beside an hour": table("date,hour,load", "2026-09-01", "1{n}", "{n}"),
    "a date beside a time of day": table("date,hour,y", "2026-09-01", "{n}:00", "1{n}"),
    "months beside years": "year,month,y\n" + "".join(
        f"{year},{month},1\n" for year in (2024, 2025) for month in range(1, 13)),
    "names of months beside years": "year,month,y\n" + "".join(
        f"{year},{month},1\n" for year in (2024, 2025) for month in ("Jan", "feb", "MAR")),
    "quarters beside years": "year,quarter,y\n" + "".join(
        f"{year},{quarter},1\n" for year in (2024, 2025) for quarter in ("Q1", "q2", "Q3")),
    "zones beside hours": "date,hour,zone,load\n" + "".join(
        f"2026-09-01,{hour},{zone},1\n" for hour in range(24) for zone in "AB"),
    "a store with a row twice": "date,store,y\n" + "".join(
        f"2026-09-0{day},{store},1\n" for day in (1, 2, 3) for store in "AAB"[day % 2 :]),
    "a stated target beside two stores": "date,store,net\n" + "".join(
        f"2026-09-0{day},{store},1\n" for day in (1, 2, 3) for store in "AB"),
    "a stated target beside two times": table("ds,date,net,y", "{d}", "{d}", "{n}", "{n}"),
    "a stated target beside hours": table("date,hour,net,load", "2026-09-01", "1{n}", "{n}", "0"),
    "a stated series beside two numbers": table("date,my store,a,b", "{d}", "A", "{n}", "{n}"),
    "an hour that comes again": "date,y\n" + "".join(
        f"2026-10-25 0{hour}:00+0{offset}:00,1\n" for hour, offset in ((1, 2), (2, 2), (2, 1))),
}  # fmt: skip
OPTION = re.compile(r"--(?:columns|date-format|decimal|missing) (?:'[^']*'|\S+)")
# What is stated already, and stays in the option that the error names.
STATED = {
    "a closed shop of several": "wide",
    "a stated target beside two stores": "target=net",
    "a stated target beside two times": "target=net",
    "a stated target beside hours": "target=net",
    "a stated series beside two numbers": "id=my store",
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_read_with_each_option_that_the_error_names(tmp_path, case):
    stated = STATED.get(case)
    with refuses(DataError) as error:
        load(tmp_path, REFUSED[case], **parse_columns((stated,) if stated else ()))
    said = str(error.value)
    assert ", line " in said or "column" in said
    options = OPTION.findall(said)
    assert options
    for number, option in enumerate(options):
        assert stated is None or stated in option or "--missing" in option
        more = ("--columns", "wide") if stated == "wide" else ()
        done = run(
            "ingest", "--source", f"files:{tmp_path}/data/x.csv", *shlex.split(option), *more,
            "--home", tmp_path / f"home{number}",
        )  # fmt: skip
        assert done.exit_code == (3 if "twice" in case else 0), (
            f"{option}: {done.output}{done.stderr}"
        )


def delete_lines_above(text: str, said: str) -> str:
    found = re.search(r"names of the columns.* line (\d+)|line (\d+): .*names of the columns", said)
    assert found
    return "\n".join(text.split("\n")[int(found[1] or found[2]) - 1 :])


def turn(text: str, said: str) -> str:
    found = re.search(r"`(table\..*)`", said)
    assert found
    given = pd.read_csv(io.StringIO(text))
    return eval(found[1], {"table": given}).to_csv(index=False)


def keep_one(text: str, said: str) -> str:
    assert "Keep one of the rows" in said and "--" not in said
    return text.replace("2026-10-01 02:00,3\n", "")


ENCODINGS = ("UTF-16", "WINDOWS-1252")
# Each is refused, and read when the file was changed as the error says.
CHANGED = {
    "title rows": (table("Sales,,\n,,\nDay,North,South", "{d}", "{n}", "{n}"),
                   delete_lines_above, {"wide": True, "time_col": "Day"}, 9),
    "title rows of one cell": (table("Sales\n\nds,y", "{d}", "{n}"), delete_lines_above, {}, 9),
    "no header": (table("2026-08-31,5", "{d}", "{n}"), lambda text, said: f"ds,y\n{text}", {}, 10),
    "numbered days in the header": ("item,dept,d_1,d_2,d_3\nA,x,1,2,3\nB,x,1,2,3\n",
                                    turn, {"wide": True}, 3),
    "dates in the header": ("item,2026-10-01,2026-10-02,2026-10-03\nA,1,2,3\nB,1,2,3\n",
                            turn, {"wide": True}, 3),
    "a repeated hour": (table("timestamp,value", "2026-10-01 {d}", "{n}", dates=HOURS),
                        keep_one, {}, 5),
    **{name: (PART, lambda text, said: text, {}, 9) for name in ENCODINGS},
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_it_is_refused_and_read_when_changed_as_the_error_says(tmp_path, case):
    text, change, options, rows = CHANGED[case]
    encoding = case if case in ENCODINGS else "UTF-8"
    (tmp_path / "x.csv").write_bytes(f"{text}{'é' if case in ENCODINGS else ''}".encode(encoding))
    with refuses(DataError) as error:
        fc.load_panel(f"files:{tmp_path}/x.csv")
    assert case not in ENCODINGS or f"iconv -f {case}" in str(error.value)
    panel = load(tmp_path, change(text, str(error.value)), **options)
    assert len(panel.times) == rows


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_one_broken_byte_is_no_other_encoding(tmp_path, byte):
    (tmp_path / "x.csv").write_bytes(PART.encode() + "Köln,1\n".encode() + byte)
    with refuses(DataError) as error:
        fc.load_panel(f"files:{tmp_path}/x.csv")
    assert "iconv" not in str(error.value)


HOUR = "date,y\n2025-10-01 00:00,1\n{0},2\n{0},3\n"


@pytest.mark.parametrize(
    ("text", "said", "not_said"),
    [
        # The hour that repeats in autumn, in Europe or North America, and others.
        (HOUR.format("2025-10-26 02:00"), "--date-format utc", "equal"),
        (HOUR.format("2025-11-02 01:30"), "--date-format utc", "equal"),
        (HOUR.format("2025-10-26 05:00"), "line 4", "utc"),
        (HOUR.format("2025-10-19 02:00"), "line 4", "utc"),
        ("unique_id,ds,y\n" + "A,2026-01-01,1\n" * 2, "equal", "utc"),
        ("name,ds,y\n" + "".join(f"A,2026-01-01,{n}\n" for n in range(3)), "1 more", "equal"),
    ],
)
def test_a_time_that_repeats_is_named_with_what_helps(tmp_path, text, said, not_said):
    with refuses(DataError) as error:
        load(tmp_path, text.replace("date,y", "unique_id,ds,y").replace("\n2", "\nA,2")
             if said.startswith("--") else text)  # fmt: skip
    assert said in str(error.value) and not_said not in str(error.value)


@pytest.mark.parametrize("name", ["x.xlsx", "x.xls"])
def test_excel_is_refused_with_the_way_out(name, tmp_path):
    (tmp_path / name).write_bytes(b"PK")
    with refuses(DataError):
        fc.load_panel(f"files:{tmp_path / name}")


def test_leading_zeros_are_hinted_at(tmp_path):
    assert near(["0001", "11", "10"], "1") == ["0001"]
    panel = load(tmp_path, table("unique_id,ds,y", "0001", "{d}", "{n}"), tickers=["0001", "1"])
    assert "write '0001' with its leading zeros" in str(panel.skipped["1"])
    (tmp_path / "g.csv").write_text("ticker,group\n1,a\n")
    with refuses(UsageError):
        read_groups(tmp_path / "g.csv").of(["0001"])


@pytest.mark.parametrize("other", ["Cafe\u0301", "Caf\u00e9 "])
def test_names_in_two_forms_of_unicode_are_one_series(tmp_path, other):
    text = f"unique_id,ds,y\nCaf\u00e9,2026-10-01,1\n{other},2026-10-02,1\n"
    with warns(ForecasterWarning):
        assert load(tmp_path, text).ids == ("Caf\u00e9",)
