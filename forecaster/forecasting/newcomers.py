"""Networks for series that have none of their own: the one that all series' networks started from.

A series that was too short when the model was fitted, or came later, is forecast by the network
that was trained on all series. Its bands start from the spread that all series' outcomes had, and
learn from its own forecasts' outcomes as those of any other series do.
"""

import dataclasses
import warnings

import jax
import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning
from forecaster.forecasting.model import Model, Networks
from forecaster.series import Histories, Panel, spacing_of

_NAMED = 5


def newcomers_of(model: Model, panel: Panel) -> list[str]:
    """The series of a panel that the model has no network for, in their order."""
    known = set(model.ids)
    return [name for name in panel.ids if name not in known]


def with_newcomers(model: Model, panel: Panel) -> Model:
    """The model with networks for all series of a panel, those it lacks from the common start.

    ``panel``: as :func:`match_panel` returns it. Warns of the series that have no network of their
    own.
    """
    new = newcomers_of(model, panel)
    if not new:
        return model
    warnings.warn(
        f"{len(new)} series without a network of their own forecast by the one trained on all: "
        f"{', '.join(new[:_NAMED])}{', ...' if len(new) > _NAMED else ''}",
        ForecasterWarning,
        stacklevel=3,
    )
    part = panel.only(new)
    scores = np.full((len(new), *model.normal_scores.shape[1:]), np.nan, np.float32)
    return dataclasses.replace(
        model,
        networks=_extended(model.networks, new),
        transform=model.transform.with_series(part, model.config.season),
        normal_scores=np.concatenate([model.normal_scores, scores]),
        fitted_until=np.concatenate([model.fitted_until, _scored_from(model, part)]),
        spacing=np.concatenate([model.spacing, _spacing(part)]),
    )


def _extended(networks: Networks, new: list[str]) -> Networks:
    """Networks with the common start for further series."""
    start = networks.start
    assert start is not None, "match_panel leaves out what has no network then"

    def extended(own: np.ndarray, common: np.ndarray) -> np.ndarray:
        return np.concatenate([own, np.repeat(common[None], len(new), axis=0)])

    ids = (*networks.ids, *new)
    return dataclasses.replace(
        networks,
        ids=ids,
        params=jax.tree.map(extended, networks.params, start),
        report=networks.report.reindex(pd.Index(ids, name="unique_id")),
    )


def _spacing(panel: Panel) -> np.ndarray:
    return np.array([spacing_of(panel.times[seen]) for seen in panel.mask])


def _scored_from(model: Model, panel: Panel) -> np.ndarray:
    """The time of each series since which its forecasts count for its bands.

    Nothing of it was learned from, so all do; but no more than bands remember.
    """
    positions = Histories.of(panel).positions
    latest = positions[:, -model.config.longest_validation :]
    first = np.where(latest >= 0, latest, len(panel.times)).min(1)
    return panel.times[first].astype(model.fitted_until.dtype)
