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


def test_new_york_is_closed_on_its_holidays():
    sessions = regular_sessions("2021-12-20", "2022-01-19")
    closed = pd.bdate_range("2021-12-20", "2022-01-19").difference(sessions)
    assert [str(day.date()) for day in closed] == ["2021-12-24", "2022-01-17"]
