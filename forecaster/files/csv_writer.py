"""Write CSV without formulas: names come from outside, and spreadsheets run formulas."""

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# A formula begins with one of these signs, also in full width. Spreadsheets may split cells at
# signs other than commas, so a formula may begin after such a sign, too.
_SIGN = "[=+@\uff1d\uff0b\uff0d\uff20-]"
# Spaces and invisible characters; some programs strip them from the beginning of a cell.
_UNSEEN = (
    "[\\s\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)
_FORMULA = re.compile(
    rf"^(?={_UNSEEN}{_SIGN}|{_UNSEEN}[\t\r\n])|(?<=[;|\t\r\n])(?={_UNSEEN}{_SIGN})"
)


def write_csv(
    table: "pd.DataFrame", to: "Path | IO[str] | None" = None, *, header: bool = True
) -> str:
    """Write a table as CSV, with a quote before each text or heading that would be a formula.

    - ``to``: a path or an open file; None: return the text
    - ``header``: whether to write the column names; for a table in parts, only with the first part
    """
    out = table.rename(columns=_unformulated)
    for position, kind in enumerate(out.dtypes):
        if kind.kind not in "biufcmM":  # numbers and times are not text
            column = out.iloc[:, position]
            quoted = {text: _unformulated(text) for text in column.dropna().unique()}
            out.isetitem(position, column.astype(object).map(quoted).to_numpy())
    return out.to_csv(to, index=False, header=header) or ""


def _unformulated(text: object) -> object:
    if not isinstance(text, str):
        return text
    # Python before 3.13 does not quote a lone carriage return, which would end the row.
    return _FORMULA.sub("'", text).replace("\r\n", "\n").replace("\r", "\n")
