"""Find the series of a model that a caller means, however their names are spelled.

Listing runs needs this, so it loads no JAX.
"""

from collections.abc import Mapping, Sequence

from forecaster.errors import Kind, Skipped, near, spelled, spellings


def resolve_names(
    ids: Sequence[str], skipped: Mapping[str, Skipped], names: Sequence[str] | None
) -> tuple[list[str], dict[str, Skipped]]:
    """Return the series that match names, and the reason for each name without one.

    - ``ids``: the series that a model has networks for
    - ``skipped``: the series that its fit skipped, with the reason
    - ``names``: as a caller writes them; None: all series of the model
    """
    if names is None:
        return list(ids), {}
    known, left_out = spellings(ids), spellings(skipped)
    found: dict[str, None] = {}
    unknown: dict[str, Skipped] = {}
    for name in names:
        if (series := spelled(known, name)) is not None:
            found[series] = None
        elif (series := spelled(left_out, name)) is not None:
            why = skipped[series]
            unknown[name] = Skipped(Kind.SKIPPED_BY_FIT, why.rows, why.needed, detail=str(why))
        else:
            similar = ", ".join(near(ids, name))
            detail = f"{len(ids)} series of the model" + (f"; near: {similar}" if similar else "")
            unknown[name] = Skipped(Kind.NOT_IN_MODEL, detail=detail)
    return list(found), unknown
