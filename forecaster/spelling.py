"""Which of some series is meant by a name, however it is spelled."""

import itertools
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_COMPARED = 5_000  # names: each takes a tenth of a millisecond


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Names by how :func:`spelled` looks for them; of two that look alike, the first counts."""
    names = list(names)
    plain = {_plain(name): name for name in reversed(names)}
    return plain | {name: name for name in names}


def spelled(known: Mapping[str, str], name: str) -> str | None:
    """A name as it is known: letter case and the sign before a share class do not matter.

    ``known``: of :func:`spellings`. ``BRK-B``, ``BRK.B`` and ``brk.b`` are the same.
    """
    return known.get(name) or known.get(_plain(name))


def near(known: Iterable[str], name: str) -> list[str]:
    """Up to five names that resemble one, for an error message; of many, those that begin alike."""
    ids = {known_as.upper(): known_as for known_as in known}
    if len(ids) > _COMPARED:
        begin = name.upper()[:2]
        ids = {upper: known_as for upper, known_as in ids.items() if upper.startswith(begin)}
        ids = dict(itertools.islice(ids.items(), _COMPARED))
    found = get_close_matches(name.upper(), ids, n=5, cutoff=0.5)
    found = found or [upper for upper in ids if upper.startswith(name.upper()[:1])][:5]
    return [ids[upper] for upper in found]


def _plain(name: str) -> str:
    return name.strip().upper().replace(".", "-")
