"""Which exchange a symbol trades on, and when it is open."""

import pandas as pd
import pytest

from forecaster.series.calendar.exchanges import exchange_of, regular_sessions


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
