"""Files of members over time, and lists of tickers that must not pass for them."""

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


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize(
    "lines",
    [
        ["ticker|start|end", "AAPL|2000-01-03|", "ENE|2000-01-03|2001-12-02", "NVDA|2001-12-03"],
        ["Name|Symbol|Start|End", "Apple, Inc.|AAPL|2000-01-03|", "Enron|ENE|2000-01-03|2001-12-02",
         "Nvidia|NVDA|2001-12-03|"],
        ["sep=|", "start|end|ticker", "2000-01-03||AAPL", "2000-01-03|2001-12-02|ENE",
         "2001-12-03||NVDA"],
        ["# who", "ticker|start|end|announced", "AAPL|2000-01-03||", "NVDA|2001-12-03||2001-12-01",
         "ENE|2000-01-03|2001-12-02|1999-12-01"],
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
        assert not holds(members, "XXX", "2010-01-01")


def test_a_ticker_that_comes_back_has_two_spans(tmp_path):
    rows = "ENE,2000-01-03,2001-12-02\nENE,2005-01-03,\n"
    members = read_membership(write(tmp_path, f"ticker,start,end\n{rows}"))
    assert members is not None and members.tickers == ["ENE"]
    assert holds(members, "ENE", "2010-01-01") and not holds(members, "ENE", "2003-01-01")


@pytest.mark.parametrize(
    "text",
    [
        "Symbol,Last,Change,Volume\nAAPL,2000.11,0.1,20201231\nMSFT,20.5,-0.2,1234567\nKO,1,1,1\n",
        "Symbol,Name,Last Sale,Market Cap,IPO Year\nAAPL,Apple,$190.1,20201.5,1980\n",
        "ticker,added,removed\nAAPL,,\n",
    ],
)
def test_numbers_are_no_dates(tmp_path, text):
    path = write(tmp_path, text)
    assert read_membership(path) is None and read_universe(path)[0] == "AAPL"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ticker,delisted\nAAPL,\nENE,2001-12-02\n", "column 'delisted' beside the tickers"),
        ("ticker,out\nENE,02.12.2001\n", "column 'out' beside the tickers"),
        ("ticker,out\nENE,2-Dec-2001\nMCI,3 July 2002\n", "column 'out' beside the tickers"),
        ("ticker,out\nENE,2001-12-02 00:00:00\n", "column 'out' beside the tickers"),
        ("ticker\nENE,2000-01-03,2001-12-02\n", "column 2 without a name beside the tickers"),
        ("month,ticker\n2000-01,ENE\n", "column 'month' beside the tickers"),
        ("year,tickers\n2000,ENE\n", "column 'year' beside the tickers"),
        ("ticker,start,delisted\nENE,2000-01-03,2001-12-02\n", "column 'start' beside the tick"),
        ("ticker,since,until\nENE,2000-01-03,2001-12-02\n", "expected ticker,start,end, a row for"),
        ("ticker,start\nENE,2000-01-03\n", "column 'start' beside the tickers"),
        ("ticker,date\nAAPL,2000-01-03\n", "column 'date' beside the tickers"),
        ("ticker;end\nAAPL;2000-01-03\n", "column 'end' beside the tickers"),
        ('date,tickers\n2000-01-03,"AAPL,ENE"\n', "column 'date' beside the tickers holds dates"),
        ("ticker,startDate,endDate\nENE,2000-01-03,2001-12-02\n", "column 'startDate' beside"),
        ("Symbol,GICS Sector,Date added\nMMM,Industrials,1957-03-04\n", "column 'Date added' be"),
        ("2000-01-03,AAPL\n", "no header says .*; expected tickers only, or a header ticker,"),
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
        ("ticker,start,end\n", "no ticker in it"),
        ("ticker,start,end\nKO\n", "line 2: '' is not a date"),
        ('ticker,start,end\n"KO,2020-01-01,\nT,2020-02-01,\n', "line 2: a quote is not closed"),
        ("ticker,start,end\n" + "A" * 200_000, "line 2: cannot be split into cells"),
    ],
)
def test_errors_name_the_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        read_membership(write(tmp_path, text))
