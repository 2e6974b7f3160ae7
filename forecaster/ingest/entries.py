"""What a store's list of contents says of each series."""

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

_SHA256_AT = '"sha256": "'


class SeriesEntry(NamedTuple):
    """One stored series.

    - ``state``: "ok", or "suspect" when the source has contradicted what is stored
    - ``reason``: why it is suspect
    - ``asked_from``: the first date that the source was asked for; None: all history
    - ``timezone``: of the exchange, where the source says
    - ``fingerprint``: of the source when the series was read from it, where it has one
    - ``rows``, ``first``, ``last``: their number, and the times of the first and the last
    - ``sha256``, ``file``: hash and name of the file
    """

    rows: int
    first: str
    last: str
    sha256: str
    file: str
    state: str = "ok"
    reason: str | None = None
    asked_from: str | None = None
    timezone: str | None = None
    fingerprint: str | None = None

    @property
    def suspect(self) -> bool:
        """Whether the source has contradicted what is stored."""
        return self.state != "ok"

    def as_suspect(self, reason: str) -> "SeriesEntry":
        """The same entry, marked as contradicted by the source."""
        return self._replace(state="suspect", reason=reason)

    def to_json(self) -> dict[str, Any]:
        """Its fields, without those that are as by default."""
        default = SeriesEntry._field_defaults
        fields = zip(SeriesEntry._fields, self, strict=True)
        return {
            name: value for name, value in fields if name not in default or value != default[name]
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "SeriesEntry":
        """Read an entry; raises KeyError when a field without a default is missing."""
        try:  # as this version writes them, all is understood
            return SeriesEntry(**fields)
        except TypeError:
            pass
        needed = {name: fields[name] for name in ("rows", "first", "last", "sha256", "file")}
        names = SeriesEntry._field_defaults
        return SeriesEntry(**needed, **{name: fields[name] for name in names if name in fields})


class Entries(MutableMapping[str, SeriesEntry]):
    """Entries by name, each read from its text when it is asked for: few of 100,000 are.

    - ``entries``: by name an entry, or its text as JSON
    """

    def __init__(self, entries: Mapping[str, SeriesEntry | str]):
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> SeriesEntry:
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = SeriesEntry.from_json(json.loads(entry))
        return entry

    def sha256(self, names: Iterable[str]) -> list[str]:
        """The hashes of these files; asked for of all series, so nothing is made of them."""
        hashes: list[str] = []
        for name in names:
            entry = self._entries[name]
            if isinstance(entry, str):
                begin = entry.index(_SHA256_AT) + len(_SHA256_AT)
                hashes.append(entry[begin : entry.index('"', begin)])
            else:
                hashes.append(entry.sha256)
        return hashes

    def __setitem__(self, name: str, entry: SeriesEntry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
