"""Which exchange a symbol trades on, and when it is open."""

import pandas as pd
import pytest

from forecaster.series.calendar.exchanges import (
    exchange_of,
    holidays_by_rule,
    regular_holidays,
    regular_sessions,
)
from forecaster.series.calendar.holidays import tabled_holidays


@pytest.mark.parametrize(
    ("symbol", "exchange"),
    [("AAPL", "XNYS"), ("^GSPC", "XNYS"), ("^FTSE", None), ("SAP.DE", "XETR"), ("X.QQ", None),
     ("BTC-USD", "24/7"), ("EURUSD=X", "24/5"), ("GC=F", "CMES")],
)  # fmt: skip
def test_a_symbol_says_which_exchange_it_trades_on(symbol, exchange):
    assert exchange_of(symbol) == exchange


@pytest.mark.parametrize(
    "closed",
    ["2024-01-01", "2024-01-15", "2024-02-19", "2024-03-29", "2024-05-27", "2024-06-19",
     "2024-07-04", "2024-09-02", "2024-11-28", "2024-12-25", "2021-07-05", "2021-12-24"],
)  # fmt: skip
def test_new_york_is_closed(closed):
    assert pd.Timestamp(closed) not in regular_sessions("2021-01-01", "2024-12-31")


@pytest.mark.parametrize("opened", ["2021-12-31", "2021-06-18", "2024-10-14", "2024-11-11"])
def test_new_york_is_open(opened):
    assert pd.Timestamp(opened) in regular_sessions("2021-01-01", "2024-12-31")


def test_sessions_of_a_year_are_counted_right():
    counts = [
        len(regular_sessions(f"{year}-01-01", f"{year}-12-31")) for year in (2021, 2023, 2024)
    ]
    assert counts == [252, 250, 252]  # as the exchange publishes them


def test_the_table_of_holidays_is_what_the_rules_say():
    first, last = 1962, 2050
    rules = holidays_by_rule(first, last)
    right = "\n".join(
        f"{year} {' '.join(rules[rules.year == year].strftime('%m%d'))}"
        for year in range(first, last + 1)
    )
    assert list(regular_holidays(first, last)) == list(rules), f"the table should be\n{right}"
    assert tabled_holidays(first - 1, last) is None and tabled_holidays(first, last + 1) is None
    assert list(regular_holidays(2049, 2051)) == list(holidays_by_rule(2049, 2051))
