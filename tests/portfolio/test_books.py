"""Books of positions: what is read, and what is refused since a total would be wrong."""

import pandas as pd
import pytest

from forecaster.errors import UsageError
from forecaster.portfolio import books_of
from tests.messages import refuses


def table(columns: str, *rows: str) -> pd.DataFrame:
    lines = [row.split(",") for row in rows]
    return pd.DataFrame(lines, [f"book.csv, line {n}" for n in range(2, 2 + len(lines))],
                        columns.split(","))  # fmt: skip


def test_books_are_read():
    one, other = books_of(
        table("Book,Symbol,Shares,Currency,note", "a,AAPL,10,USD,x", "b,BRK.B,-2.5,EUR,",
              "a,cash,1e3,,", "a,KO,0,USD,")
    )  # fmt: skip
    assert (one.name, one.kind, one.amounts, one.cash) == ("a", "shares", {"AAPL": 10.0}, 1000.0)
    assert other.renamed({"BRK-B": "BRK-B"}).amounts == {"BRK-B": -2.5}
    (weights,) = books_of(pd.DataFrame({"ticker": ["A", "CASH"], "weight": [3, -1]}))
    assert (weights.amounts, weights.cash) == ({"A": 150.0}, -50.0)


@pytest.mark.parametrize(
    "given",
    [
        "book",
        table("ticker,shares"),
        table("ticker,amount", "A,1"),
        table("ticker,shares,value", "A,1,2"),
        table("ticker,shares", "A,1", ",2"),
        table("ticker,shares", "A,1", "B,1", "A,2"),
        table("ticker,shares", "BRK.B,1", "brk-b,2"),
        table("ticker,shares", "A,many"),
        table("ticker,value", "A,inf"),
        table("ticker,value,currency", "A,1,USD", "B,2,eur", "CASH,5,USD"),
        table("ticker,weight", "A,0.5", "B,-0.5"),
        table("ticker,weight", "A,0"),
        table("ticker,value", "CASH,0"),
        pd.DataFrame({"ticker": ["A", "B"], "shares": [1, 2], "book": [None, "x"]}),
    ],
)
def test_what_would_make_a_total_wrong_is_refused(given):
    with refuses(UsageError):
        books_of(given)
