"""Which series of a model is meant by a name, however it is spelled."""

from collections.abc import Sequence
from difflib import get_close_matches

from forecaster.forecasting.model import Model


def resolve_names(model: Model, names: Sequence[str] | None) -> tuple[list[str], dict[str, str]]:
    """Names as a model writes them, and why it has no network for the others.

    None stands for all series of the model.
    """
    if names is None:
        return list(model.ids), {}
    ids: dict[str, None] = {}
    unknown: dict[str, str] = {}
    for name in names:
        if (spelled := _spelled(model, name)) is not None:
            ids[spelled] = None
        elif (why := model.skipped.get(name) or model.skipped.get(name.upper())) is not None:
            unknown[name] = f"was skipped by the fit: {why}"
        else:
            unknown[name] = f"not in the latest model ({len(model.ids)} series){_near(model, name)}"
    return list(ids), unknown


def _spelled(model: Model, name: str) -> str | None:
    """A name as the model has it: letter case and the sign before a share class do not matter."""
    if name in set(model.ids):
        return name
    ids = {known.upper(): known for known in model.ids}
    upper = name.strip().upper()
    spellings = (upper, upper.replace(".", "-"), upper.replace("-", "."))
    return next((ids[spelling] for spelling in spellings if spelling in ids), None)


def _near(model: Model, name: str) -> str:
    """Names of the model that resemble one, for an error message."""
    ids = {known.upper(): known for known in model.ids}
    near = get_close_matches(name.upper(), ids, n=5, cutoff=0.5)
    near = near or [known for known in ids if known.startswith(name.upper()[:1])][:5]
    return f"; near: {', '.join(ids[known] for known in near)}" if near else ""
