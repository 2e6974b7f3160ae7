"""Any dates and numbers, in frames and files, are read as they are or refused; no row is lost."""

import contextlib
import datetime
import decimal
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.errors import ForecasterError, ForecasterWarning
from tests.limits import within_limits
from tests.slow import SHARE

BLANK = {"", "na", "n/a", "#n/a", "nan", "null", "none", "-", "nat", "<na>"}
# How a day may be written, and the day that the notation keeps of it.
NOTATIONS: dict[str, Any] = {
    "%Y-%m-%d": lambda day: day,
    "%Y%m%d": lambda day: day,
    "%Y-%m-%d 00:00:00+00": lambda day: day,
    "%Y-%m-%dT00Z": lambda day: day,
    "%Y%m": lambda day: day.replace(day=1),
    "%YM%m": lambda day: day.replace(day=1),
    "%G-W%V": lambda day: day - datetime.timedelta(days=day.weekday()),
    "%YQ": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
}
WRITTEN_TIMES = [
    "2024-01-01", "2024-02-30", "0000-00-00", "9999-12-31", "1600-01-01", "24:00", "", "202201",
    "202213", "20240101", "2022Q1", "2022Q5", "2022W05", "2022-W54", "45292", "45292.5", "1e400",
    "inf", "2024-01-01 10:00:00+00", "2024-01-01 10:00:00+99", "2024-01-01 10:00:00-03:30",
    "2024-01-01T10Z", "T10Z", "+00", "-1", "0", "3", "1.0", "01/02/2024", "13/01/2024", "Jan 2024",
    "1704067200", "9" * 30, "1+2j", "True", "now", "today", "NaT", "\u0662\u0660\u0662\u0664-01-01",
]  # fmt: skip
WRITTEN_NUMBERS = [
    "1", "2.5", "-3", "", "NA", "nan", "-", "inf", "-inf", "-Infinity", "1e400", "-1e400", "1e-400",
    "1,234.5", "1.234,5", "1,234", "12%", "$5", "€5", "(3)", "1k", "0x10", "1_000", "1+2j", "True",
    "1 000", "5 kg", "\u0661\u0662", "--", "1e", "9" * 400, "2024-01-01", "=1/0", "#DIV/0!",
]  # fmt: skip
THINGS: list[Any] = [
    None, np.nan, np.inf, -np.inf, 1.5, 7, -1, 0, 10**18, 10**400, True, np.bool_(False), 1 + 2j,
    pd.NA, pd.NaT, pd.Timedelta(1, "D"), np.timedelta64(3, "h"), datetime.timedelta(1),
    pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01 10:00", tz="Europe/Berlin"),
    datetime.date(2024, 1, 3), datetime.datetime(1, 1, 1), datetime.time(1), np.datetime64("NaT"),
    np.datetime64("2024-01-05"), pd.Period("2024-01", "M"), decimal.Decimal("1.5"),
    decimal.Decimal("-Infinity"), b"1", [1], {}, "1", "2024-01-01",
    np.float16(3), np.longdouble(4), np.int8(5), 202201, 45292, 20240101,
]  # fmt: skip

times = st.one_of(st.sampled_from(WRITTEN_TIMES), st.text(max_size=8), st.dates().map(str))
numbers = st.one_of(
    st.sampled_from(WRITTEN_NUMBERS), st.text(max_size=6), st.floats().map(str),
    st.integers().map(str),
)  # fmt: skip
things = st.one_of(st.sampled_from(THINGS), st.floats(), st.integers())


def written(day: datetime.date, notation: str) -> str:
    if notation == "%YQ":
        return f"{day.year}Q{(day.month + 2) // 3}"
    return day.strftime(notation)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, list[datetime.date] | None]:
    """A table of two series, and the days of its rows where all are sound."""
    count = draw(st.integers(1, 12))
    notation = draw(st.sampled_from(list(NOTATIONS)))
    gaps = draw(st.lists(st.integers(0, 200), min_size=count, max_size=count))
    start = draw(st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)))
    days = [start + datetime.timedelta(days=int(gap)) for gap in np.cumsum(gaps)]
    cells: list[Any] = [written(day, notation) for day in days]
    values: list[Any] = draw(st.lists(st.integers(1, 99).map(str), min_size=count, max_size=count))
    sound = draw(st.booleans())
    if not sound:
        hostile = st.one_of(st.none(), times, things)
        for row in draw(st.lists(st.integers(0, count - 1), max_size=4)):
            cells[row] = draw(hostile)
        hostile = st.one_of(st.none(), numbers, things)
        for row in draw(st.lists(st.integers(0, count - 1), max_size=4)):
            values[row] = draw(hostile)
        if draw(st.booleans()):  # a column that is hostile throughout
            same = draw(st.one_of(times, things))
            cells = [same] * count
    names = draw(st.lists(st.sampled_from("AB"), min_size=count, max_size=count))
    target = draw(st.sampled_from(["y", "close"]))
    frame = pd.DataFrame({"unique_id": names})
    frame["ds"], frame[target] = pd.Series(cells, dtype=object), pd.Series(values, dtype=object)
    for column, kinds in (("currency", st.sampled_from(["EUR", "USD", ""])), ("more", numbers)):
        if draw(st.integers(0, 3)) == 0:
            frame[column] = draw(st.lists(kinds, min_size=count, max_size=count))
    keeps = [NOTATIONS[notation](day) for day in days]
    return frame, keeps if sound else None


def load(frame: pd.DataFrame, kind: str, folder) -> fc.Panel:
    if kind == "objects":
        return fc.load_panel(frame)
    if kind == "inferred":
        with contextlib.suppress(ValueError, TypeError, OverflowError, decimal.InvalidOperation):
            frame = frame.infer_objects()
        return fc.load_panel(frame)
    text = frame.map(lambda cell: "" if cell is None else readable(cell))
    path = folder / f"x.{kind}"
    if kind == "csv":
        text.to_csv(path, index=False)
    else:
        text.to_parquet(path, index=False)
    return fc.load_panel(f"files:{path}", mask=())


def readable(cell: Any) -> str:
    try:
        text = str(cell)
    except ValueError:  # too many digits
        text = "9" * 400
    return text.encode("utf-8", "replace").decode()


def is_blank(cell: Any) -> bool:
    return cell is None or readable(cell).strip().lower() in BLANK


def check(table: tuple[pd.DataFrame, list[datetime.date] | None], kind: str, folder) -> None:
    """Load a table; all its rows must be there, or named, or refused with an error."""
    frame, days = table
    target = str(frame.columns[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecasterWarning)
        try:
            with within_limits():
                panel = load(frame, kind, folder)
        except ForecasterError as error:
            assert str(error)
            return
    if panel.times.dtype.kind == "M":
        assert not (abs(panel.times - np.datetime64("now")) < np.timedelta64(1, "h")).any()
    filled = ~frame[target].map(is_blank)
    assert set(panel.ids) | set(panel.skipped) == set(frame["unique_id"])
    for row, name in enumerate(panel.ids):
        own = (frame["unique_id"] == name).to_numpy()
        assert int(panel.mask[row].sum()) == int((own & filled).sum())
        assert np.isfinite(
            panel.values[row, panel.mask[row], panel.channels.index(panel.target)]
        ).all()
        if "currency" in frame:
            assert len(set(frame["currency"][own]) - {""}) <= 1
        if days is not None:
            got = panel.times[panel.mask[row]].astype("M8[D]").tolist()
            meant = sorted(day for day, mine in zip(days, own, strict=True) if mine)
            assert got == meant
    future = frame[["ds"]].assign(x=frame[target])
    with contextlib.suppress(ForecasterError):
        panel.with_future(future)


KINDS = st.sampled_from(["objects", "inferred", "csv", "parquet"])
quick = settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


@quick
@given(table=tables(), kind=KINDS)
def test_any_dates_and_numbers_are_read_or_refused(tmp_path, table, kind):
    check(table, kind, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(quick, max_examples=60_000 // SHARE)
@given(table=tables(), kind=KINDS)
def test_any_dates_and_numbers_are_read_or_refused_for_long(tmp_path, table, kind):
    check(table, kind, tmp_path)
