"""Files of covariates are read by the rules of other files, or refused with the file's name."""

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import DataError, ForecasterWarning, UsageError
from forecaster.ingest import Columns, CovariateFiles
from forecaster.series import Panel
from tests.messages import refuses, warns

DAYS = pd.date_range("2024-01-31", periods=40)


@pytest.fixture
def panel():
    days = pd.DataFrame({"ds": DAYS, "y": np.arange(40.0)})
    return Panel.from_frame(pd.concat([days.assign(unique_id=n) for n in ("SHOP-A", "SHOP-B")]))


@pytest.fixture
def plans():
    """Return a price for each shop and day."""
    rows = [{"shop": n, "day": d, "price": 1.5 + k, "sale": bool(k % 3)} for n in ("shop.a",
            "SHOP-B") for k, d in enumerate(DAYS)]  # fmt: skip
    return pd.DataFrame(rows)


def added(panel, path, kind="future", **reading):
    return CovariateFiles.from_paths(**{kind: path}, reading=Columns(**reading)).added_to(panel)


def prices(panel):
    assert panel.future is not None
    return panel.future.at("SHOP-A", DAYS.to_numpy())[:, panel.future.columns.index("price")]


NAMED = {"id_col": "shop", "time_col": "day"}


@pytest.mark.parametrize(
    ("form", "sign", "said"),
    [
        ("%Y-%m-%d", ".", NAMED),
        ("%d/%m/%Y", ",", NAMED | {"date_format": "%d/%m/%Y"}),
        ("%Y-%m-%d", ",", NAMED | {"date_format": "%d/%m/%Y", "decimal": ","}),
        ("%d%m%Y", ".", NAMED | {"date_format": "%d%m%Y"}),
    ],
)
def test_dates_and_numbers_are_read_as_in_other_files(panel, plans, tmp_path, form, sign, said):
    plans = plans.assign(day=plans["day"].dt.strftime(form))
    plans.to_csv(tmp_path / "plans.csv", index=False, sep=";", decimal=sign)
    with_plans = added(panel, tmp_path / "plans.csv", **said)
    np.testing.assert_array_equal(prices(with_plans), 1.5 + np.arange(40))
    assert with_plans.future is not None and with_plans.future.columns == ("price", "sale")


def test_parquet_keeps_flags_and_words(panel, plans, tmp_path):
    plans.to_parquet(tmp_path / "plans.parquet")
    np.testing.assert_array_equal(
        prices(added(panel, tmp_path / "plans.parquet", **NAMED)), 1.5 + np.arange(40)
    )
    kinds = pd.DataFrame({"ticker": ["shop.a", "SHOP-B"], "kind": ["town", "farm"]})
    kinds.to_parquet(tmp_path / "kinds.parquet")
    static = added(panel, tmp_path / "kinds.parquet", "static").static
    assert static is not None
    assert static["kind"].to_dict() == {"SHOP-A": "town", "SHOP-B": "farm"}


def test_words_stay_words_and_numbers_become_numbers(panel, tmp_path):
    (tmp_path / "kinds.csv").write_text("ticker;size;kind\nSHOP-A;1,5;town\nSHOP-B;22,25;farm\n")
    static = added(panel, tmp_path / "kinds.csv", "static").static
    assert static is not None
    assert static["size"].tolist() == [1.5, 22.25]
    assert static["kind"].tolist() == ["town", "farm"]


@pytest.mark.parametrize(
    ("text", "said", "message"),
    [
        ("ds,sale\n01/02/2024,1\n02/02/2024,0\n", {}, "say how: --date-format %m/%d/%Y or"),
        ("ds,sale\n2024-01-31,1\n31.02.2024,0\n", {}, r"line 3, column 'ds': '31.02.2024' is not"),
        ("day,sale\n2024-01-31,1\n", {}, "expected columns ds, unique_id .*; got day, sale"),
        ("ds;sale\n2024-01-31;1,234\n", {}, "1,234"),
        ("ds;sale\n2024-01-31;n.b.\n", {}, "column 'sale' holds text"),
        ("ds,date,sale\n2024-01-31,2024-01-31,1\n", {}, "columns 'ds', 'date' mean the same"),
        ("unique_id,ds,sale\n,2024-01-31,1\n", {}, "row 1, column 'unique_id': names no series"),
        ("ds,sale\n", {}, "no rows; expected a header and one row or more"),
        ("ds,sale\n2024-01-31,-1e151\n", {}, "'sale': -1e\\+151 is too large to be scaled"),
        ("ds,sale\n2024-01-31,1\n31/01/2024,1\n", {"date_format": "%d/%m/%Y"},
         r"line 2, column 'ds': '2024-01-31' is not a date; expected what --date-format %d"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_error_that_names_the_file(panel, tmp_path, text, said, message):
    (tmp_path / "plans.csv").write_text(text)
    with refuses(DataError):
        added(panel, tmp_path / "plans.csv", **said)


def test_what_is_no_format_is_refused():
    for options in ({"date_format": "x"}, {"decimal": ";"}):
        with refuses(UsageError):
            Columns.from_options(options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["future", "static"])
def test_a_row_that_names_no_series_is_refused(panel, tmp_path, kind):
    names = pd.array(["SHOP-A", None, "SHOP-B"], "string")
    pd.DataFrame({"unique_id": names, "ds": DAYS[:3], "n": 1}).to_parquet(tmp_path / "t.parquet")
    with refuses(DataError):
        added(panel, tmp_path / "t.parquet", kind)


@pytest.mark.parametrize("odd", ["n/a%", "12%", "unknown"])
def test_a_word_among_numbers_is_named(panel, tmp_path, odd):
    rows = "".join(f"OTHER-{n},{n}\n" for n in range(3))
    (tmp_path / "s.csv").write_text(f"ticker,size\nSHOP-A,{odd}\nSHOP-B,2\n{rows}")
    with warns(ForecasterWarning):
        added(panel, tmp_path / "s.csv", "static")
