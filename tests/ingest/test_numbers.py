"""Numbers in all conventions are read exactly or refused."""

import csv
import io
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forecaster.errors import DataError, UsageError
from forecaster.ingest import Columns, load_panel, open_source
from forecaster.ingest.tables.file_reader import read_series
from tests.messages import refuses

DAYS = ["2024-01-02", "2024-01-03", "2024-01-04"]
# The decimal sign, and the sign between thousands.
CONVENTIONS = [(d, t) for d in ".," for t in ("", ".", ",", " ", "'", "\u202f", "\u2019") if d != t]


def written(number: Decimal, decimal: str, thousands: str) -> str:
    whole, _, fraction = f"{number:,f}".partition(".")
    whole = whole.replace(",", thousands)
    return f"{whole}{decimal}{fraction}" if fraction else whole


def csv_of(rows: list[list[str]], separator: str) -> str:
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if separator == "," else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator="\n").writerows(rows)
    return text.getvalue()


numbers = st.one_of(
    st.integers(0, 10**7).map(Decimal),
    st.tuples(st.integers(0, 10**7), st.integers(1, 5)).map(lambda n: Decimal(n[0]).scaleb(-n[1])),
    st.integers(1_000, 999_999).map(lambda n: Decimal(n).scaleb(-3)),  # 1.234: has both readings
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    table=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=3),
    convention=st.sampled_from(CONVENTIONS),
    separator=st.sampled_from(",;\t"),
)
def test_any_table_is_read_exactly_or_refused(tmp_path, table, convention, separator):
    decimal, thousands = convention
    header = ["date", "close", "volume", "promotion"]
    rows = [
        [day, *(written(number, decimal, thousands) for number in row)]
        for day, row in zip(DAYS, table, strict=False)
    ]
    path = tmp_path / "x.csv"
    path.write_text(csv_of([header, *rows], separator), encoding="utf-8")
    expected = [[float(number) for number in row] for row in table]

    (told,) = read_series(path, columns=Columns(decimal=decimal)).values()
    assert told[header[1:]].to_numpy().tolist() == expected
    try:
        (frame,) = read_series(path).values()
    except DataError as error:
        assert "--decimal" in str(error) and "line" in str(error)
        return
    assert frame[header[1:]].to_numpy().tolist() == expected


def read(tmp_path, text: str, **options) -> dict[str, list[float]]:
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    (frame,) = read_series(tmp_path / "x.csv", columns=Columns(**options)).values()
    return frame.drop(columns=["unique_id", "ds"]).to_dict("list")  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("close", "expected"),
    [
        (["1,234", "0,985"], [1.234, 0.985]),  # no thousands begin with 0
        (["1,234", "12,5"], [1.234, 12.5]),
        (["1,234", "1234,567"], [1.234, 1234.567]),
        (["1.234.567", "2.345"], [1234567.0, 2345.0]),
        (["1,234,567", "2,345"], [1234567.0, 2345.0]),
        (["1 234,5", "7"], [1234.5, 7.0]),
        (["1\u00a0234\u00a0567,5", "7"], [1234567.5, 7.0]),
        (["1'234.5", "-2'000"], [1234.5, -2000.0]),
        (["\u22125,5", "(1.234,25)"], [-5.5, -1234.25]),
        (["$1,234.50", "-$2,000"], [1234.5, -2000.0]),
        (["60,5K", "1,25m"], [60500.0, 1.25e6]),
        (["65.6727M", "2B"], [65672700.0, 2e9]),
        (["1,5e3", "2e-1"], [1500.0, 0.2]),
        (["€1.234,50", "-£2"], [1234.5, -2.0]),
        ([".", "2.5"], [float("nan"), 2.5]),  # as FRED writes what is missing
        (["..", ":"], [float("nan")] * 2),  # and World Bank and Eurostat
    ],
)
def test_what_can_be_read_in_one_way_is(tmp_path, close, expected):
    rows = "".join(f"{day};{number}\n" for day, number in zip(DAYS, close, strict=False))
    np.testing.assert_array_equal(read(tmp_path, f"date;close\n{rows}")["close"], expected)


NO_NUMBERS = (
    "1$2", "1_000", "0x1F", "\u0661\u0662", "1.2.3", "1,23,456", "0,123.5", "12%", "1 23", "5-",
    "1,5 2", "True", "1e999", "inf", "--", "1'23", "1.234 567", "(5", "+-5", "5kk",
)  # fmt: skip
REFUSED = [
    *(f"date;close;open\n2024-01-02;{cell};1.25\n" for cell in NO_NUMBERS),
    # Columns that contradict each other.
    "date;open;close\n2024-01-02;10,5;10.25\n",
    "date;open;close\n2024-01-02;10.5;10,25\n",
    'date,open,close\n2024-01-02,10.5,"10,25"\n',
    "date;close\n2024-01-02;10,5\n2024-01-03;10.25\n",
    "unique_id;ds;y;promotion\nA;1;1.5;0,5\n",
    # A price that may be in thousands, beside decimal points.
    "date;close;open\n2024-01-02;10.5;1,234\n",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_number_is_refused(tmp_path, text):
    with refuses(DataError):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "date;close\n2024-01-02;1,234\n2024-01-03;2,345\n",
        "date;close\n2024-01-02;1.234\n2024-01-03;2.345\n",
        "date\tclose\n2024-01-02\t1.234\n",
        "date;close;volume\n2024-01-02;1,234;65672700\n",
        'date,close\n2024-01-02,"1,234"\n',
        'date,close\n2024-01-02,"1.234"\n',
        "date;close\n2024-01-02;1'234\n2024-01-03;1,234\n",
    ],
)
def test_what_may_be_read_in_two_ways_is_refused_until_one_is_named(tmp_path, text):
    with refuses(DataError):
        read(tmp_path, text)
    swapped = {1234.0: 1.234, 2345.0: 2.345, 1.234: 1234.0, 2.345: 2345.0}
    commas, points = (read(tmp_path, text, decimal=sign)["close"][-1] for sign in ",.")
    assert commas == swapped[points]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Another price shows that commas are between thousands; volumes have no fractions.
        ("date;close;open\n2024-01-02;10.5;1,234\n2024-01-03;2,345.5;1\n",
         {"close": [10.5, 2345.5], "open": [1234.0, 1.0]}),
        ("date;close;volume\n2024-01-02;10.5;1,234\n", {"close": [10.5], "volume": [1234.0]}),
        # Plain points in a file with commas between cells are decimal.
        ("date,close\n2024-01-02,1.234\n2024-01-03,2.345\n", {"close": [1.234, 2.345]}),
        # Other columns of numbers are kept, whatever their sign.
        ("unique_id;ds;y;promotion;note\nA;1;1,5;0,5;soon\nA;2;2,5;1,5;1,5\n",
         {"y": [1.5, 2.5], "promotion": [0.5, 1.5]}),
        ("unique_id;ds;y;promotion;note\nA;1;1.5;0.5;soon\nA;2;2.5;1.5;1\n",
         {"y": [1.5, 2.5], "promotion": [0.5, 1.5]}),
    ],
)  # fmt: skip
def test_other_cells_show_what_a_sign_means(tmp_path, text, expected):
    assert read(tmp_path, text) == expected


def test_a_sign_that_the_user_names_wrongly_is_refused(tmp_path):
    with refuses(DataError):
        read(tmp_path, "date;close\n2024-01-02;10.25\n", decimal=",")
    with refuses(UsageError):
        load_panel(f"files:{tmp_path / 'x.csv'}", decimal="x")
    with refuses(UsageError):
        load_panel("yahoo", decimal=",")


def test_another_sign_is_another_reading_of_the_same_file(tmp_path):
    from forecaster.files import Home
    from forecaster.ingest import ingest

    (tmp_path / "x.csv").write_text("date;close\n2024-01-02;1,234\n2024-01-03;2,345\n")
    for decimal, closes in ((",", [1.234, 2.345]), (".", [1234.0, 2345.0])):
        source = open_source(
            f"files:{tmp_path / 'x.csv'}", columns=Columns.from_options({"decimal": decimal})
        )
        store = ingest(Home(tmp_path / "home"), source, None).store
        assert store.read(["x"])["close"].tolist() == closes
