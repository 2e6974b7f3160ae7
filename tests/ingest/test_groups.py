"""Files of groups are read, or refused with file and line."""

import pytest

from forecaster.errors import UsageError
from forecaster.ingest import read_groups, read_weights

IDS = ["AAPL", "BRK-B", "XOM"]


def read(folder, text: str):
    path = folder / "groups.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_groups(path)


@pytest.mark.parametrize(
    "text",
    [
        "ticker,group\naapl,Tech\nbrk.b,Banks\nZZZ,Other\n",
        "Group;Ticker\nTech;AAPL\nBanks;BRK-B\n",
        "sep=;\nSymbol;Security;Group\nAAPL;Apple;Tech\nBRK.B;Berkshire;Banks\n",
        "unique_id\tgroup\nAAPL\tTech\nBRK-B\tBanks\nXOM\t\n",
        "ticker,group\n# a comment\nAAPL,Tech\nAAPL,Tech\nbrk-b,Banks\n",
    ],
)
def test_tickers_and_groups_are_found(tmp_path, text):
    assert read(tmp_path, text).of(IDS) == {"AAPL": "Tech", "BRK-B": "Banks"}


def test_any_names_may_be_grouped_and_come_out_as_the_series_write_them(tmp_path):
    groups = read(tmp_path, "unique_id,group\nMilk / north,Dairy\nH1,Power\n")
    assert groups.of(["milk / North", "h1", "H2"]) == {"milk / North": "Dairy", "h1": "Power"}
    share = read(tmp_path, "ticker,group\nBRK-B,Banks\n")
    assert share.of(["BRK.B"]) == {"BRK.B": "Banks"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing in it; expected a header ticker,group"),
        (
            "AAPL,Tech\n",
            "the columns are AAPL, Tech; expected a header ticker,group",
        ),
        ("ticker,name,price\nAAPL,Apple,3\n", "the columns are ticker, name, price; expected"),
        (
            "ticker,sector\nAAPL,Tech\n",
            "the columns are ticker, sector; expected a header ticker,group",
        ),
        ("series,group\nH1,Power\n", "the columns are series, group; expected"),
        ("ticker,group\n", "no ticker with a group"),
        ("ticker,group\nAAPL,\n", "no ticker with a group"),
        ("ticker,group\n,Tech\n", "line 2: no ticker; expected"),
        (
            "ticker,group\nBRK-B,Banks\nAAPL,Tech\nbrk.b,Funds\n",
            "line 4: brk.b is in 'Funds', but in 'Banks' on line 2; expected one group",
        ),
        (b"ticker,group\nAAPL,T\xff\n", "not a text file"),
        ('ticker,group\nAAPL,"Tech\nKO,Food\n', "line 2: a quote is not closed"),
        ("ticker,group\nAAPL," + "T" * 200_000, "line 2: cannot be split into cells"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_place(tmp_path, text, words):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value) and "groups.csv" in str(caught.value)


def test_a_file_of_other_series_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no group for any of the 3 series; the file has KO"):
        read(tmp_path, "ticker,group\nKO,Drinks\n").of(IDS)


def test_a_missing_file_says_which(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.csv: cannot be read"):
        read_groups(tmp_path / "nowhere.csv")


def test_weights_of_several_groups_are_read(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("Ticker;Group;Weight\nAAPL;Tech;1.5\nBRK.B;Banks;-2\nAAPL;Mine;3\n")
    assert read_weights(path) == {
        "Tech": {"AAPL": 1.5}, "Banks": {"BRK.B": -2.0}, "Mine": {"AAPL": 3.0},
    }  # fmt: skip
    path.write_text("ticker,group\nAAPL,Tech\nMSFT,Tech\n")
    assert read_weights(path) == {"Tech": {"AAPL": 1.0, "MSFT": 1.0}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ticker,group,weight\nA,x,0\n", "line 2: weight: expected a number other than 0"),
        ("ticker,group,weight\nA,x\n", "line 2: weight: expected .* got ''"),
        ("ticker,group,weight\nA,x,nan\n", "got 'nan'"),
        ("ticker,group\nA,x\na,x\n", "line 3: a is twice in 'x'"),
        ("ticker,weight\nA,1\n", "the columns are ticker, weight; expected"),
        (
            "ticker,group,shares\nA,x,3\n",
            "column 'shares': expected the columns ticker,group,weight",
        ),
        ("ticker,group\nA,x\nB,\n", "line 3: B has no group"),
        ("ticker,group\n", "no ticker in it"),
        ("ticker,group\n,x\n", "line 2: no ticker"),
        ("", "nothing in it"),
    ],
)
def test_wrong_weights_are_refused(tmp_path, text, words):
    path = tmp_path / "groups.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_weights(path)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("ticker,group,shares,weight", "'shares'.*leave it out"),
        ("ticker,group,Weight,Quantity", "'quantity'.*leave it out"),
        ("ticker,group,weight,weight", "'weight' is twice.*leave one out"),
        ("ticker,group,units,shares,amount", "'amount'.*leave it out"),
    ],
)
def test_several_columns_of_weights_are_refused(tmp_path, header, named):
    path = tmp_path / "portfolios.csv"
    path.write_text(f"{header}\nAAPL,mine,10,0.25,7\n")
    with pytest.raises(UsageError, match=f"column {named}"):
        read_weights(path)
