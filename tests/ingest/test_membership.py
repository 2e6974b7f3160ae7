"""Who belonged to a universe when."""

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import UsageError
from forecaster.ingest import read_membership, read_universe


def write(tmp_path, text: str):
    path = tmp_path / "members.csv"
    path.write_text(text)
    return path


def holds(membership, name: str, day: str) -> bool:
    return bool(membership.holds(np.array([name], object), pd.to_datetime([day]).to_numpy())[0])


@pytest.mark.parametrize(
    "text",
    [
        'date,tickers\n2000-01-03,"AAPL,ENE"\n2001-12-03,"AAPL,NVDA"\n2005-01-03,"AAPL ENE NVDA"\n',
        "date,tickers\n2000-01-03,AAPL,ENE\n2001-12-03,AAPL,NVDA\n2005-01-03,AAPL,ENE,NVDA\n",
        "date,ticker\n2000-01-03,AAPL\n2000-01-03,ENE\n2001-12-03,AAPL\n2001-12-03,NVDA\n"
        "2005-01-03,AAPL\n2005-01-03,ENE\n2005-01-03,NVDA\n",
        "Ticker,start_date,end_date\nAAPL,2000-01-03,\nENE,2000-01-03,2001-12-02\n"
        "NVDA,2001-12-03,\nENE,2005-01-03,\n",
        "# who\nticker,start,end\nAAPL,2000-01-03,\nENE,2000-01-03,2001-12-02\n"
        "NVDA,2001-12-03,\nENE,2005-01-03,\n",
    ],
)
def test_both_formats(tmp_path, text):
    members = read_membership(write(tmp_path, text))
    assert members is not None and sorted(members.tickers) == ["AAPL", "ENE", "NVDA"]
    assert holds(members, "ENE", "2001-12-02") and not holds(members, "ENE", "2001-12-03")
    assert not holds(members, "AAPL", "1999-12-31") and holds(members, "AAPL", "2024-01-01")
    assert holds(members, "ENE", "2010-01-01") and not holds(members, "XXX", "2010-01-01")
    assert holds(members, "NVDA", "2001-12-03") and not holds(members, "NVDA", "2001-12-02")


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize(
    "lines",
    [
        ["date|tickers", '2000-01-03|"AAPL,ENE"', "2001-12-03|AAPL,NVDA"],
        ["date|tickers", "2000-01-03|AAPL ENE", "2001-12-03|AAPL NVDA"],
        ["date|tickers", "2000-01-03|AAPL|ENE", "2001-12-03|AAPL|NVDA"],
        ["date|ticker|weight", "2000-01-03|AAPL|0,5", "2000-01-03|ENE|0,5", "2001-12-03|AAPL|0,5",
         "2001-12-03|NVDA|0,5"],
        ["ticker|start|end", "AAPL|2000-01-03|", "ENE|2000-01-03|2001-12-02", "NVDA|2001-12-03"],
        ["Name|Symbol|From|To", "Apple, Inc.|AAPL|2000-01-03|", "Enron|ENE|2000-01-03|2001-12-02",
         "Nvidia|NVDA|2001-12-03|"],
        ["sep=|", "start|end|ticker", "2000-01-03||AAPL", "2000-01-03|2001-12-02|ENE",
         "2001-12-03||NVDA"],
    ],
)  # fmt: skip
def test_separators_and_orders_of_columns(tmp_path, lines, separator):
    path = write(tmp_path, "\n".join(lines).replace("|", separator))
    for encoding in ("utf-8", "utf-16"):
        path.write_text("\n".join(lines).replace("|", separator), encoding=encoding)
        members = read_membership(path)
        assert members is not None and sorted(members.tickers) == ["AAPL", "ENE", "NVDA"]
        assert holds(members, "ENE", "2001-12-02") and not holds(members, "ENE", "2001-12-03")
        assert holds(members, "NVDA", "2001-12-03") and not holds(members, "NVDA", "2001-12-02")
        assert holds(members, "AAPL", "2024-01-01") and not holds(members, "AAPL", "1999-12-31")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ticker,date\nAAPL,2000-01-03\n", "a column 'date' beside the tickers"),
        ("ticker;end\nAAPL;2000-01-03\n", "a column 'end' beside the tickers"),
        ("2000-01-03,AAPL\n", "line 1: '2000-01-03' is a date, and no header says of what"),
        ("date members\n2000-01-03 AAPL\n", "line 2: '2000-01-03' is a date"),
        ("date;members\n20000103;AAPL\n", "line 2: '20000103' is a date"),
        ("tag\n03-04-2015 AAPL\n", "line 2: '03-04-2015' is a date"),
    ],
)
def test_dates_are_not_dropped(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=message):
        assert read_membership(path) or read_universe(path)


def test_a_plain_list_is_none(tmp_path):
    path = write(tmp_path, "AAPL\nMSFT\n")
    assert read_membership(path) is None and read_universe(path) == ["AAPL", "MSFT"]
    assert read_membership("sp500.txt") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ticker,start,end\nAAPL,yesterday,\n", r"line 2: 'yesterday' is not a date"),
        ("ticker,start,end\nAAPL,2001-01-01,2000-01-01\n", r"line 2: AAPL ends before it starts"),
        ("ticker,start,end\n../x,2001-01-01,\n", r"line 2: '../x' cannot be a ticker"),
        ("date,tickers\n", "no ticker in it"),
    ],
)
def test_errors_name_the_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        read_membership(write(tmp_path, text))
