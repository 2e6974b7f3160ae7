"""Which series of a model is meant by a name, however it is spelled."""

from collections.abc import Mapping, Sequence

from forecaster.spelling import near, spelled, spellings


def resolve_names(
    ids: Sequence[str], skipped: Mapping[str, str], names: Sequence[str] | None
) -> tuple[list[str], dict[str, str]]:
    """Names as a model writes them, and why it has no network for the others.

    - ``ids``: the series that it has networks for
    - ``skipped``: those that its fit left out, with the reason
    - ``names``: as a caller writes them; None: all
    """
    if names is None:
        return list(ids), {}
    exactly = set(names).intersection(ids)
    if len(exactly) == len(
        set(names)
    ):  # as ever so many names of a large model need not be spelled
        return list(dict.fromkeys(names)), {}
    known, left_out = spellings(ids), spellings(skipped)
    found: dict[str, None] = {}
    unknown: dict[str, str] = {}
    for name in names:
        if (series := spelled(known, name)) is not None:
            found[series] = None
        elif (series := spelled(left_out, name)) is not None:
            unknown[name] = f"was skipped by the fit: {skipped[series]}"
        else:
            similar = ", ".join(near(ids, name))
            unknown[name] = (
                f"not among the {len(ids)} series of the model"
                f"{f'; near: {similar}' if similar else ''}"
            )
    return list(found), unknown
