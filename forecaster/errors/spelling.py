"""Find a series by name, whatever the letter case and the sign before a share class."""

import itertools
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_COMPARED = 5_000  # maximum number of names that are compared, since each takes 0.1 ms


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Return the table in which :func:`spelled` looks names up.

    If two names differ only in spelling, any third spelling finds the first of them.
    """
    names = list(names)
    by_key = {spelling_key(name): name for name in reversed(names)}
    return by_key | {name: name for name in names}


def spelled(known: Mapping[str, str], name: str) -> str | None:
    """Return the known name that ``name`` stands for; None if there is none.

    ``known``: from :func:`spellings`. ``BRK-B``, ``BRK.B`` and ``brk.b`` are the same.
    """
    return known.get(name) or known.get(spelling_key(name))


def spelling_key(name: str) -> str:
    """Return a name in upper case, with a hyphen before a share class."""
    return name.strip().upper().replace(".", "-")


def near(known: Iterable[str], name: str) -> list[str]:
    """Return up to five known names that resemble ``name``, for an error message.

    Names that differ only in leading zeros, such as 0001 for 1, come alone. If there are more than
    5,000, only those with the same first two letters are compared.
    """
    ids = {known_as.upper(): known_as for known_as in known}
    if padded := [ids[upper] for upper in ids if _same_number(upper, name)]:
        return padded[:5]
    if len(ids) > _COMPARED:
        begin = name.upper()[:2]
        ids = {upper: known_as for upper, known_as in ids.items() if upper.startswith(begin)}
        ids = dict(itertools.islice(ids.items(), _COMPARED))
    found = get_close_matches(name.upper(), ids, n=5, cutoff=0.5)
    found = found or [upper for upper in ids if upper.startswith(name.upper()[:1])][:5]
    return [ids[upper] for upper in found]


def hint_of_zeros(known: Iterable[str], names: Iterable[str]) -> str:
    """Return advice for a name that lacks the leading zeros of a known one; else an empty text."""
    known = list(known)
    for name in names:
        if alike := next((one for one in known if _same_number(one, name)), None):
            return f"; write {alike!r} with its leading zeros (in a spreadsheet, as text)"
    return ""


def _same_number(one: str, other: str) -> bool:
    """Return whether two names of digits are the same but for leading zeros."""
    both = one.isdecimal() and other.isdecimal()
    return both and one != other and one.lstrip("0") == other.lstrip("0")
