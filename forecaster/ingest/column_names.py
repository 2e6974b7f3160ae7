"""What columns are called elsewhere, and what they are called here."""

SPELLINGS = {
    "ticker": "unique_id", "symbol": "unique_id", "date": "ds", "datetime": "ds",
    "adjclose": "adj_close", "adjusted_close": "adj_close", "adj._close": "adj_close",
    "close/last": "close", "vol": "volume", "vol.": "volume", "stock_splits": "splits",
    "otwarcie": "open", "najwyzszy": "high", "najnizszy": "low", "zamkniecie": "close",
    "wolumen": "volume",
}  # fmt: skip
# These count only where no other column has the meaning. The last two are an index without a name.
WEAK = {
    "name": "unique_id", "timestamp": "ds", "time": "ds", "data": "ds", "price": "close",
    "unnamed:_0": "ds", "__index_level_0__": "ds",
}  # fmt: skip
ACTIONS = ("dividends", "splits")  # which are in adj_close already
PRICES = ("open", "high", "low", "volume", *ACTIONS)
SHARES = "change_%"
UNUSED = ("per", "openint", SHARES, "capital_gains", "unnamed:_0", "__index_level_0__")
TARGETS = ("y", "close", "adj_close")


def canonical(column: str) -> str:
    """A column's name as it is used here, whatever its spelling."""
    name = column.strip().lower().lstrip("\ufeff").strip("<>*'\" ").replace(" ", "_")
    return SPELLINGS.get(name, name)


def canonical_names(columns: list[str]) -> dict[str, str]:
    """The names used here by those of a table; some spellings count only where no other does."""
    names = {column: canonical(column) for column in columns}
    for column, name in names.items():
        if name in WEAK and WEAK[name] not in names.values():
            names[column] = WEAK[name]
    return names


def is_needed(name: str) -> bool:
    """Whether a column of that canonical name is used although it holds no numbers."""
    return name in ("unique_id", "ds", "time", *TARGETS, *PRICES) or name in WEAK
