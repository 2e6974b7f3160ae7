"""Tests that spreadsheets open our CSV without running formulas."""

import csv
import io
import sys
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.files import write_csv

UNSEEN = [
    char
    for char in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp")
    and not unicodedata.name(char, "").startswith(("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN"))
]  # the others are drawn at random
SIGNS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


@given(st.lists(st.text(alphabet=[*SIGNS, *"A1!(), ;|\"'", "\u00e9", *"\u200b\ufeff\xad"],
                        max_size=12), min_size=1),
       st.sampled_from([",", ";", "\t"]))  # fmt: skip
def test_no_cell_is_a_formula_wherever_a_program_parts_them(names, separator):
    table = pd.DataFrame({"unique_id": names, "=ds": 1, "y": -1.5})
    text = write_csv(table)
    back = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert len(back) == len(names) and set(back["y"]) == {"-1.5"}
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
        for cell in row:
            assert cell.lstrip("".join(UNSEEN))[:1] not in [*SIGNS] or cell.endswith("-1.5"), cell


@pytest.mark.parametrize("sign", SIGNS)
def test_nothing_unseen_hides_a_formula(sign):
    """Programs that strip invisible characters would run the formula behind them."""
    names = [f"{unseen}{sign}1" for unseen in [*UNSEEN, "\u200b \ufeff", "\u3164", "\ufe0f"]]
    text = write_csv(pd.DataFrame({"unique_id": names}))
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert len(rows) == len(names)
    for (cell,), name in zip(rows, names, strict=True):
        assert cell.startswith("'"), ascii(name)


def test_what_is_no_formula_stays_as_it_is():
    table = pd.DataFrame(
        {
            "unique_id": pd.Categorical(["A=X", "^GSPC", "BRK-B"]),
            "ds": pd.bdate_range("2024-01-01", periods=3),
            "note": ["a, b", None, "it's"],
            "y": [-1.0, np.nan, 3.25],
            "n": [1, 2, -3],
            "held": [True, False, True],
        }
    )
    assert write_csv(table) == table.to_csv(index=False)
    assert write_csv(table, header=False) == table.to_csv(index=False, header=False)
