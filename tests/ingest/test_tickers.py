"""Files of tickers, of groups and of members over time are read, or refused with their line."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import UsageError
from forecaster.files import file_name
from forecaster.ingest import (
    listed_tickers,
    normalise,
    read_groups,
    read_membership,
    read_universe,
    read_weights,
)
from tests.messages import refuses

DATA = Path(__file__).parents[2] / "data"


def write(tmp_path, raw: bytes | str, name: str = "tickers.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return path


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\xef\xbb\xbfaapl\r\n\r\n# comment\r\nMsft # inline\r\n", ["AAPL", "MSFT"]),
        ("AAPL, MSFT;KO  IBM", ["AAPL", "MSFT", "KO", "IBM"]),
        ("BRK.B\nBRK-B\nbrk.b\n", ["BRK-B"]),
        ("SHELL.AS\n^GSPC\nEURUSD=X\n0700.HK", ["SHELL.AS", "^GSPC", "EURUSD=X", "0700.HK"]),
        ('Symbol,Security\n"BF.B","Brown, Forman"\nT,AT&T', ["BF-B", "T"]),
        ("name,TICKER\nApple,AAPL\n,\nNike,NKE", ["AAPL", "NKE"]),
        ('Symbol,Name\nAAPL,"Apple, Inc. # one"\nbrk.b,Berkshire\n', ["AAPL", "BRK-B"]),
        ("sep=;\nSymbol;Name\nAAPL;Apple Inc\n", ["AAPL"]),
        ("# a list\nCompany\tTicker symbol\nApple Inc\tAAPL\n", ["AAPL"]),
        # Numbers are no dates.
        ("Symbol,Last,Change,Volume\nAAPL,2000.11,0.1,20201231\nMSFT,2,-2,1234567\n",
         ["AAPL", "MSFT"]),
        ("Symbol,Name,Last Sale,IPO Year\nAAPL,Apple,$190.1,1980\n", ["AAPL"]),
        ("Symbol,Price to Book,Date first added\nMMM,1,1957-03-04\n", ["MMM"]),
        ("Symbol,GICS Sector,Date added\nMMM,Industrials,1957-03-04\n", ["MMM"]),
    ],
)  # fmt: skip
def test_lists_as_they_are_found(tmp_path, raw, expected):
    path = write(tmp_path, raw)
    assert read_universe(path) == expected and read_membership(path) is None


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize(
    "lines",
    [
        ["ticker|start|end", "AAPL|2000-01-03|", "ENE|2000-01-03|2001-12-02", "NVDA|2001-12-03",
         "ENE|2005-01-03|"],
        ["sep=|", "# who", "start|end|Symbol|announced", "2000-01-03||AAPL|",
         "2000-01-03|2001-12-02|ENE|1999-12-01", "2001-12-03||NVDA|", "2005-01-03||ENE|"],
    ],
)  # fmt: skip
def test_members_belong_from_their_first_day_to_their_last(tmp_path, lines, separator):
    text = "\n".join(lines).replace("|", separator)
    members = read_membership(write(tmp_path, text))
    assert members is not None and sorted(members.tickers) == ["AAPL", "ENE", "NVDA"]
    there = {
        "ENE": ("2001-12-02", "2010-01-01"), "NVDA": ("2001-12-03",), "AAPL": ("2024-01-01",),
    }  # fmt: skip
    gone = {
        "ENE": ("2001-12-03", "2003-01-01"), "NVDA": ("2001-12-02",), "AAPL": ("1999-12-31",),
        "XXX": ("2010-01-01",),
    }  # fmt: skip
    for expected, days in ((True, there), (False, gone)):
        rows = [(name, day) for name, each in days.items() for day in each]
        names, times = (np.array(part, object) for part in zip(*rows, strict=True))
        held = members.holds(names, pd.to_datetime(times).to_numpy())
        assert (held == expected).all()


IDS = ["AAPL", "BRK-B", "XOM"]


@pytest.mark.parametrize(
    "text",
    [
        "ticker,group\naapl,Tech\nbrk.b,Banks\nZZZ,Other\n",
        "sep=;\nSymbol;Security;Group\nAAPL;Apple;Tech\nBRK.B;Berkshire;Banks\n",
        "unique_id\tgroup\nAAPL\tTech\nBRK-B\tBanks\nXOM\t\n",
        "ticker,group\n# a comment\nAAPL,Tech\nAAPL,Tech\nbrk-b,Banks\n",
    ],
)
def test_groups_of_tickers_are_found(tmp_path, text):
    assert read_groups(write(tmp_path, text)).of(IDS) == {"AAPL": "Tech", "BRK-B": "Banks"}


def test_any_names_may_be_grouped_and_weighted(tmp_path):
    groups = read_groups(write(tmp_path, "unique_id,group\nMilk / north,Dairy\nH1,Power\n"))
    assert groups.of(["milk / North", "h1", "H2"]) == {"milk / North": "Dairy", "h1": "Power"}
    with refuses(UsageError):
        groups.of(IDS)
    path = write(tmp_path, "Ticker;Group;Weight\nAAPL;Tech;1.5\nBRK.B;Banks;-2\nAAPL;Mine;3\n")
    assert read_weights(path) == {
        "Tech": {"AAPL": 1.5}, "Banks": {"BRK.B": -2.0}, "Mine": {"AAPL": 3.0},
    }  # fmt: skip
    assert read_weights(write(tmp_path, "ticker,group\nAAPL,Tech\n")) == {"Tech": {"AAPL": 1.0}}


OF_ANY = [
    b"PAR1\x00\x15\x04",
    "AAPL".encode("utf-16"),
    'ticker,group,start,end\nAAPL,"Tech,2020-01-01,\n',
    "ticker,group,start,end\nAAPL," + "T" * 200_000,
]
OF_UNIVERSES = [
    "",
    "# only a comment\n",
    "AAPL\n\n../../etc/passwd\n",
    "AAPL\n" + "A" * 10_000,
    "A\x1b[31m",
    "AAPL\tApple Inc\nKO\tCoca Cola",
    "ÄÖ",
]
OF_MEMBERS = [
    "ticker,start,end\nAAPL,yesterday,\n",
    "ticker,start,end\nAAPL,2001-01-01,2000-01-01\n",
    "ticker,start,end\n../x,2001-01-01,\n",
    "ticker,start,end\n",
    "ticker,start,end\nKO\n",
    # Dates under another header would make it a list of today's members.
    "ticker,delisted\nAAPL,\nENE,2001-12-02\n",
    "year,tickers\n2000,ENE\n",
    "ticker,start,x\nENE,2000-01-03,2001-12-02\n",
    "ticker;end\nAAPL;2000-01-03\n",
    "2000-01-03,AAPL\n",
    "date;members\n20000103;AAPL\n",
    "ticker,entry,exit\nENE,2000-01-03,2001-12-02\n",
    "ticker,Start_Date,End Date\nENE,2000-01-03,2001-12-02\n",
    "ticker,enddate\nENE,2001-12-02\n",
    "ticker,last_date\nENE,2001-12-02\n",
    "AAPL\n05-12-2020\n",
    "AAPL\n5.12.20\n",
]
OF_GROUPS = [
    "",
    "AAPL,Tech\n",
    "ticker,sector\nAAPL,Tech\n",
    "ticker,group\nAAPL,\n",
    "ticker,group\n,Tech\n",
    "ticker,group\nBRK-B,Banks\nAAPL,Tech\nbrk.b,Funds\n",
]  # fmt: skip
OF_WEIGHTS = [
    "ticker,group,weight\nA,x,0\n",
    "ticker,group,weight\nA,x\n",
    "ticker,group,weight\nA,x,nan\n",
    "ticker,group\nA,x\na,x\n",
    "ticker,weight\nA,1\n",
    "ticker,group,shares,weight\nA,x,3,1\n",
    "ticker,group,weight,weight\nA,x,3,1\n",
    "ticker,group\nA,x\nB,\n",
    "ticker,group\n",
]


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        *((read, one) for one in OF_ANY for read in (read_universe, read_membership, read_groups)),
        *((read_universe, one) for one in OF_UNIVERSES),
        *((lambda path: read_membership(path) or read_universe(path), one) for one in OF_MEMBERS),
        *((read_groups, one) for one in OF_GROUPS),
        *((read_weights, one) for one in OF_WEIGHTS),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else None,
)
def test_what_cannot_be_understood_is_refused_with_its_place(tmp_path, read, raw):
    path = write(tmp_path, raw)
    with refuses(UsageError) as caught:
        read(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 400


def test_what_is_no_file_is_not_read(tmp_path):
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # reading it may never end
    for read in (read_universe, read_membership, read_groups):
        for name in ("none.txt", ".", "pipe"):
            with refuses(UsageError):
                read(tmp_path / name)


def test_the_universes_that_come_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # found by name from any folder
    sp500, dow = read_universe("sp500.txt"), read_universe("dow30.txt")
    assert len(sp500) == 503 and {"AAPL", "BRK-B", "BF-B"} <= set(sp500)
    assert len(dow) == 30 and set(dow) <= set(sp500)
    (tmp_path / "dow30.txt").write_text("KO")  # one's own file comes first
    assert read_universe("dow30.txt") == ["KO"]
    for name in ("sp500.txt", "dow30.txt"):
        assert (DATA / name).read_text().startswith("# ")


WORDS = ["AAPL", "brk.b", "../../etc", "CON", "a/b", "^GSPC", "A" * 10_000, "\x07", "-", "#",
         "Symbol,Name", "date,tickers", "ticker,start,end", "2024-01-01,AAPL"]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=12)), max_size=8))
def test_any_file_gives_safe_symbols_or_one_clear_error(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("any") / "tickers.txt"
    path.write_bytes("\n".join(words).encode("utf-8", "surrogatepass"))
    for read in (read_universe, read_membership):
        try:
            universe = read(path)
        except UsageError:
            continue
        names = universe if isinstance(universe, list) else universe.tickers if universe else []
        for name in names:
            assert re.fullmatch(r"\^?[A-Z0-9][A-Z0-9.\-=_]{0,23}", name) and ".." not in name
            assert normalise(name) == name and "/" not in file_name(name)


def test_tickers_may_be_named_themselves(tmp_path, monkeypatch):
    assert listed_tickers("aapl, brk.b;MSFT BRK-B") == ["AAPL", "BRK-B", "MSFT"]
    many = [f"T{n}" for n in range(300)]  # longer than any file name
    assert listed_tickers(",".join(many)) == many
    names = ["SHELL.AS", "BMW.DE", "7203.T", "600519.SS", "TEVA.TA"]  # exchanges, no endings
    assert [listed_tickers(name) for name in names] == [[name] for name in names]
    for file in ("sp500.txt", "none.csv", "a/b", ""):
        assert listed_tickers(file) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AAPL,KO").write_text("IBM")  # a file wins
    assert listed_tickers("AAPL,KO") is None and read_universe("AAPL,KO") == ["IBM"]
    (tmp_path / "KO").mkdir()  # a folder does not
    assert listed_tickers("KO") == ["KO"]
    for text in ("DOW30", "A,../b"):
        with refuses(UsageError):
            listed_tickers(text)
