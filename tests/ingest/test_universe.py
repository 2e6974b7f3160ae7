"""Ticker files in common forms are read, and bad ones refused."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import UsageError
from forecaster.ingest import listed_tickers, normalise, read_membership, read_universe
from forecaster.ingest.tickers.groups import read_groups

DATA = Path(__file__).parents[2] / "data"


def write(tmp_path, raw: bytes | str) -> Path:
    path = tmp_path / "tickers.txt"
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return path


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("AAPL\nMSFT\n", ["AAPL", "MSFT"]),
        (b"\xef\xbb\xbfaapl\r\n\r\n# comment\r\nMsft # inline\r\n", ["AAPL", "MSFT"]),
        ("AAPL, MSFT;KO  IBM", ["AAPL", "MSFT", "KO", "IBM"]),
        ("BRK.B\nBRK-B\nbrk.b\n", ["BRK-B"]),
        ("SHELL.AS\n^GSPC\nEURUSD=X\n0700.HK", ["SHELL.AS", "^GSPC", "EURUSD=X", "0700.HK"]),
        ('Symbol,Security\n"BF.B","Brown, Forman"\nT,AT&T', ["BF-B", "T"]),
        ("name,TICKER\nApple,AAPL\n,\nNike,NKE", ["AAPL", "NKE"]),
        ("ticker\nKO", ["KO"]),
        ('Symbol,Name\nAAPL,"Apple, Inc. # one"\nbrk.b,Berkshire\n', ["AAPL", "BRK-B"]),
        ("Symbol;Name\nAAPL;Apple Inc\n", ["AAPL"]),
        ("sep=;\nSymbol;Name\nAAPL;Apple Inc\n", ["AAPL"]),
        ("Symbol,Name\nAAPL,Äpfel\n".encode("utf-16"), ["AAPL"]),
        ("# a list\nCompany\tTicker symbol\nApple Inc\tAAPL\n", ["AAPL"]),
    ],
)
def test_files_as_they_are_found(tmp_path, raw, expected):
    assert read_universe(write(tmp_path, raw)) == expected


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("", "no ticker in it; expected one a line"),
        ("# only a comment\n", "no ticker in it"),
        (b"PAR1\x00\x15\x04", "not a text file"),
        (b"\xff\xfe\x00A", "not a text file"),
        ("AAPL\n\n../../etc/passwd\n", "line 3: '../../etc/passwd' cannot be a ticker"),
        ("AAPL\nA/B", "line 2: 'A/B' cannot be a ticker"),
        ("AAPL\n" + "A" * 10_000, "line 2: 'AAAAA"),
        ("A\x1b[31m", "line 1"),
        ("AAPL\tApple Inc\nKO\tCoca Cola", "line 1: looks like a table, but no column is called"),
        ("A..B", "line 1"),
        ("ÄÖ", "line 1"),
        ('Symbol,Name\nKO,"Coca\nT,AT&T\n', "line 2: a quote is not closed on this line"),
        ('# one\nSymbol,"Name\nKO,Coca\n', "line 2: a quote is not closed"),
        ("Symbol\n" + "A" * 200_000, "line 2: cannot be split into cells: field larger"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, raw, message):
    path = write(tmp_path, raw)
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        read_universe(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 400


def test_a_missing_file_or_a_folder_is_named(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_universe(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_what_may_never_end_is_not_read(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    for read in (read_universe, read_membership, read_groups):
        with pytest.raises(UsageError, match="cannot be read: not a plain file"):
            read(tmp_path / name)


def test_a_separator_that_is_a_quote_is_one(tmp_path):
    assert read_universe(write(tmp_path, 'sep="\nSymbol"Name\nKO"Coca\n')) == ["KO"]


@given(st.text(max_size=40))
def test_any_text_becomes_a_safe_ticker_or_an_error(text):
    try:
        name = normalise(text)
    except UsageError:
        return
    assert re.fullmatch(r"\^?[A-Z0-9][A-Z0-9.\-=_]*", name) and ".." not in name
    assert normalise(name) == name


def test_the_universes_that_come_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # found by name from any folder
    sp500, dow = read_universe("sp500.txt"), read_universe("dow30.txt")
    assert len(sp500) == 503 and {"AAPL", "BRK-B", "BF-B"} <= set(sp500)
    assert len(dow) == 30 and set(dow) <= set(sp500)
    (tmp_path / "dow30.txt").write_text("KO")  # one's own file comes first
    assert read_universe("dow30.txt") == ["KO"]
    for name in ("sp500.txt", "dow30.txt"):
        assert (DATA / name).read_text().startswith("# ")


@given(st.lists(st.one_of(
    st.sampled_from(["AAPL", "brk.b", "../../etc", "CON", "a/b", "^GSPC", "EURUSD=X", "A" * 10_000,
                     "\x07", "-", "=", ".", "#", "Symbol,Name", "date,tickers", "ticker,start,end",
                     "2024-01-01,AAPL"]),
    st.text(max_size=12),
), max_size=8))  # fmt: skip
def test_any_file_gives_safe_symbols_or_one_clear_error(tmp_path_factory, words):
    from forecaster.files import file_name
    from forecaster.ingest import read_membership

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
            assert "/" not in file_name(name) and file_name(name).lower() != "con"


def test_tickers_may_be_named_themselves(tmp_path, monkeypatch):
    assert listed_tickers("aapl, brk.b;MSFT BRK-B") == ["AAPL", "BRK-B", "MSFT"]
    assert listed_tickers("AAPL") == ["AAPL"]
    many = [f"T{n}" for n in range(300)]  # longer than any file name
    assert listed_tickers(",".join(many)) == many
    for file in ("sp500.txt", "none.csv", "a/b", ""):
        assert listed_tickers(file) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AAPL,KO").write_text("IBM")  # a file wins
    assert listed_tickers("AAPL,KO") is None and read_universe("AAPL,KO") == ["IBM"]
    (tmp_path / "KO").mkdir()  # a folder does not
    assert listed_tickers("KO") == ["KO"]
    with pytest.raises(UsageError, match=r"'DOW30' is not a file; .* Did you mean dow30\.txt"):
        listed_tickers("DOW30")
    with pytest.raises(
        UsageError, match=r"'A,../b' is neither a file nor a list of tickers: '../b"
    ):
        listed_tickers("A,../b")


@pytest.mark.parametrize("name", ["dow30.tx", "dow30.text", "dow3O.txt", "dow30.csv"])
def test_a_file_that_is_not_there_is_no_ticker_and_the_nearest_list_is_named(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"Did you mean dow30\.txt\?"):
        _ = listed_tickers(name) or read_universe(name)


def test_the_nearest_list_may_be_ones_own(tmp_path):
    (tmp_path / "energy.txt").write_text("XOM")
    with pytest.raises(UsageError, match=r"Did you mean .*energy\.txt\?"):
        read_universe(tmp_path / "enrgy.tx")


@pytest.mark.parametrize("word", ["dow30.txt", "dow30.tx", "mine.csv"])
def test_a_file_among_tickers_is_refused(word, tmp_path):
    with pytest.raises(UsageError, match=f"'{word}' has the ending of a file"):
        listed_tickers(f"AAPL,{word}")
    with pytest.raises(UsageError, match=f"line 2: '{word}' has the ending of a file"):
        read_universe(write(tmp_path, f"AAPL\n{word}\n".encode()))


def test_the_name_of_an_exchange_is_no_ending_of_a_file():
    names = ["SHELL.AS", "BMW.DE", "7203.T", "0700.HK", "BHP.AX", "600519.SS", "2330.TW", "TEVA.TA"]
    assert listed_tickers(",".join(names)) == names
    assert [listed_tickers(name) for name in names] == [[name] for name in names]
