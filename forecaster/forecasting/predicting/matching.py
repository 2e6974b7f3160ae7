"""Select the series of a panel that a model can forecast, with its channels and its market."""

import dataclasses
import warnings

import jax
import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, ModelError, name_reasons
from forecaster.forecasting.model import Model, Networks
from forecaster.series import Histories, Panel, behind_market, spaced_otherwise, spacing_of
from forecaster.skipped import Kind, Skipped

_NAMED = 5  # series in a warning


def newcomers_of(model: Model, panel: Panel) -> list[str]:
    """Return the series of a panel that the model has no network for, in their order."""
    known = set(model.ids)
    return [name for name in panel.ids if name not in known]


def with_newcomers(model: Model, panel: Panel) -> Model:
    """Return the model with the weights of the common start for each series without a network.

    Warns of these series. ``panel``: as :func:`match_panel` returns it.
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
        transform=model.transform.with_series(part, model.config.season).with_experts(part),
        normal_scores=np.concatenate([model.normal_scores, scores]),
        fitted_until=np.concatenate([model.fitted_until, _scored_from(model, part)]),
        spacing=np.concatenate([model.spacing, _spacing(part)]),
    )


def _extended(networks: Networks, new: list[str]) -> Networks:
    """Return the networks with the common start for further series."""
    start = networks.start
    assert start is not None, "match_panel leaves out series without a network then"

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
    """Return the time of each series since which the errors of its forecasts calibrate its bands.

    No row was used in training, so all of the latest rows count, up to the memory of bands.
    """
    positions = Histories.of(panel).positions
    latest = positions[:, -model.config.longest_validation :]
    first = np.where(latest >= 0, latest, len(panel.times)).min(1)
    return panel.times[first].astype(model.fitted_until.dtype)


def match_panel(model: Model, panel: Panel, *, latest: bool = True) -> Panel:
    """Return the panel of the series that a model can forecast, with the model's channels.

    ``latest``: whether forecasts are made from the latest rows, which then must be as far apart as
    the rows of the fit

    Warns of the other series, and names them in ``skipped``. Raises ModelError when none is left or
    the panel lacks one of the channels.
    """
    panel = _with_market(model, _with_channels(model, panel))
    reasons: dict[str, Skipped] = {}
    if model.networks.start is None:
        reasons |= dict.fromkeys(newcomers_of(model, panel), Skipped(Kind.NO_NETWORK))
    reasons |= model.transform.unusable(panel)
    of_transform = model.transform.rows_to_forecast(model.config.horizon)
    needed = max(model.config.rows_to_forecast, of_transform)
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < needed:
            reasons[name] = Skipped(Kind.TOO_SHORT_TO_FORECAST, int(rows), needed)
    reasons |= _spaced_otherwise(model, panel) | behind_market(panel) if latest else {}
    skipped = {name: reasons[name] for name in panel.ids if name in reasons}
    known = [name for name in panel.ids if name not in skipped]
    if not known:
        name, reason = next(iter(skipped.items()))
        raise ModelError(f"no forecast can be made: {name}: {reason}")
    if skipped:
        warnings.warn(
            f"{len(skipped)} series skipped:\n{name_reasons(skipped)}",
            ForecasterWarning,
            stacklevel=3,
        )
    return panel.only(known, skipped)


def _spaced_otherwise(model: Model, panel: Panel) -> dict[str, Skipped]:
    """Return the series whose rows are further apart, or closer, than at the fit."""
    known = np.unique(model.spacing)
    spacing = dict(zip(model.ids, model.spacing, strict=True))
    reasons: dict[str, Skipped] = {}
    for name, seen in zip(panel.ids, panel.mask, strict=True):
        times = panel.times[seen]
        # A series without a network is compared with the most similar spacing of the fit.
        own = spacing.get(name) or known[np.argmin(np.abs(np.log(known / spacing_of(times))))]
        if why := spaced_otherwise(times, own):
            reasons[name] = Skipped(Kind.OTHER_SPACING, detail=why)
    return reasons


def _with_channels(model: Model, panel: Panel) -> Panel:
    """Return the panel with the channels of the model's fit alone, in their order."""
    if (panel.times.dtype.kind == "M") != (model.fitted_until.dtype.kind == "M"):
        raise ModelError(
            "the model was fitted on series whose times are "
            f"{'dates' if model.fitted_until.dtype.kind == 'M' else 'whole numbers'}; these have "
            "the other kind. Fit again, or forecast from the same kind of data"
        )
    missing = [name for name in model.channels if name not in panel.channels]
    if missing:
        raise ModelError(
            f"the model was fitted on {', '.join(model.channels)}; these data lack "
            f"{', '.join(missing)}. Fit again, or forecast from the same kind of data"
        )
    if panel.channels == model.channels:
        return panel
    values = panel.values[:, :, [panel.channels.index(name) for name in model.channels]]
    mask = np.isfinite(values[:, :, model.channels.index(model.target)])
    return dataclasses.replace(
        panel, values=values, mask=mask, channels=model.channels, target=model.target
    )


def _with_market(model: Model, panel: Panel) -> Panel:
    """Return the panel with the market that the networks see."""
    name = model.transform.market
    if name is None or (panel.market is not None and panel.market.ids == (name,)):
        return panel
    if name not in panel.ids:
        raise ModelError(
            f"the model's networks see the market {name} beside each series; these data lack it. "
            f"Load the rows of {name} too"
        )
    # The market is forecast too if it has a network, or if the panel holds no other series.
    return panel.with_market(name, forecast=name in model.ids or panel.ids == (name,))
