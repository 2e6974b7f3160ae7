"""Forecast with a model: the series of a panel that it can forecast, and a word on the others."""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from forecaster.errors import (
    ForecasterWarning,
    Kind,
    ModelError,
    Skipped,
    listed,
    name_reasons,
    warn_of_skipped,
)
from forecaster.forecasting.methods import growth_of, methods_of, rows_to_train
from forecaster.forecasting.model import Model, check_model, join_models
from forecaster.forecasting.predicting.forecast import forecast_frame
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import (
    FEWEST_PEERS,
    Panel,
    behind_market,
    findings_in_words,
    findings_of,
    missed_events,
    missing_ahead,
    next_times,
    say_findings,
    show_time,
    spaced_otherwise,
    spacing_of,
)

_NAMED = 5  # series in a warning


def predict(
    model: Model,
    panel: Panel | Table,
    level: Sequence[float] = (80, 95),
    quantiles: Sequence[float] = (),
    **columns: Unpack[ColumnOptions],
) -> pd.DataFrame:
    """Forecast every series of the panel from its own latest row.

    Returns a long frame ``unique_id, ds``, the median under the model's name (``LSTM``), bounds
    ``LSTM-lo-80, LSTM-hi-80, ...`` per level in percent, and ``probability_of_rise``, the
    probability that the value lies above the latest one. Prices are in the units of ``close``, also
    where the model was fitted on ``adj_close``. The times of each series follow its own frequency.
    Of other series, ``forecast_by`` says what a forecast rests on: "own networks", "common
    network", "combination" (of simple forecasts, for a series too short for networks), "last
    value", "shrunken mean" (of a few counts, or of nothing but zeros), or the classical model that
    was asked for.

    - ``panel``: the series, or a frame with them as :func:`forecaster.load_panel` takes it
    - ``level``: levels of the bands, in percent
    - ``quantiles``: probabilities, each with a column such as ``LSTM-q-0.95``: the value that is
      not exceeded with this probability, such as the stock that covers a service level
    - ``columns``: meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`

    Series of counts (small whole numbers, zeros among them) have distributions of counts: their
    medians, bounds and quantiles are whole numbers, none below zero.

    Rows that are known to look wrong are left out, see :meth:`Panel.masked`, except for a jump at
    the latest row: most jumps are true, so it is forecast from, with a warning.

    Series that are new to the model are forecast, with a warning, by the common network from which
    all others started. Series that are too short for it are forecast by the combination of simple
    forecasts. A model of independent networks of prices has neither, and leaves new series out.
    A series whose forecast is not finite is left out, with a warning. Raises ModelError when no
    series can be forecast or channels are missing; UsageError for a level outside 0 to 100.
    """
    model, panel = prepared(model, panel, **columns)
    say_findings(findings_of(panel, forecasting=True), len(panel.ids))
    return forecast_frame(model, panel, level, quantiles)


def prepared(
    model: Model, panel: Panel | Table, **columns: Unpack[ColumnOptions]
) -> tuple[Model, Panel]:
    """Return the series that can be forecast, and the model with weights for each of them.

    Warns of series that are new, or that cannot be forecast, and of networks that have seen the
    future. Raises ModelError as :func:`predict` does.
    """
    check_model(model)
    panel = match_panel(model, as_panel(panel, **columns).masked(forecasting=True))
    _warn_of_hindsight(model, panel)
    if panel.future is not None:
        _check_known_ahead(model, panel)
    return with_newcomers(model, panel), panel


def _warn_of_hindsight(model: Model, panel: Panel) -> None:
    """Warn of series that end before their networks' training: the networks saw their future."""
    until = dict(zip(model.ids, model.fitted_until, strict=True))
    early = {
        name: f"ends {show_time(times[-1])}; its networks have seen rows up to "
        f"{show_time(until[name])}, so this is no forecast. Fit on the rows until then, or use "
        "cross_validation"
        for name, row in zip(panel.ids, panel.mask, strict=True)
        if name in until and (times := panel.times[row])[-1] < until[name]
    }
    if early:
        message = f"{len(early)} series end before the fit did:\n{name_reasons(early)}"
        warnings.warn(message, ForecasterWarning, stacklevel=4)


def _check_known_ahead(model: Model, panel: Panel) -> None:
    """Raise ModelError where a future covariate is not known for a time that is forecast.

    Warns of events to come that fall on none of these times, and of kinds that the model does not
    know.
    """
    assert panel.future is not None
    kinds = model.transform.covariates.future
    horizon, usual = model.config.horizon, model.frequency
    times = panel.of_times(lambda times: next_times(times, horizon, usual))
    ahead = dict(zip(panel.ids, times, strict=True))
    panel.future.warn_of_unknown_kinds(kinds, ahead)
    if not kinds:
        return
    if missing := missing_ahead(panel.future, panel.ids, ahead):
        raise ModelError(f"{missing}. Add the rows that are missing")
    latest = panel.of_times(lambda times: times[-1:])
    rows = map(np.concatenate, zip(latest, times, strict=True))
    each = (missed_events(panel.future, *of) for of in zip(panel.ids, rows, strict=True))
    for said in findings_in_words([*itertools.chain(*each)], len(panel.ids)).values():
        warnings.warn(said, ForecasterWarning, stacklevel=4)


def with_newcomers(model: Model, panel: Panel) -> Model:
    """Return the model with the weights of the common start for each series without a network.

    Warns of these series. ``panel``: as :func:`match_panel` returns it.
    """
    known = set(model.ids)
    new = [name for name in panel.ids if name not in known]
    if not new:
        return model
    warnings.warn(
        f"{len(new)} series that have no networks of their own are forecast by those trained on "
        f"all series: {', '.join(new[:_NAMED])}{', ...' if len(new) > _NAMED else ''}",
        ForecasterWarning,
        stacklevel=4,
    )
    part, config, networks = panel.only(new), model.config, model.networks
    rows, nobody = part.mask.sum(1), np.zeros(len(new), bool)
    # Classical models of a long series are scored on rows that they were not fitted on.
    held_back = np.where(rows >= rows_to_train(config, model.transform), rows // 2, 0)
    transform = model.transform.with_series(part, config.season)
    transform = transform.with_components(part, config.horizon, held_back)
    methods = methods_of(part, config, transform, nobody, common=networks.start is not None)
    newcomers = dataclasses.replace(
        model,
        networks=networks.only([]).among(new, methods),
        transform=transform,
        normal_scores=np.full((len(new), *model.normal_scores.shape[1:]), np.nan, np.float32),
        fitted_until=_scored_from(model, part, held_back),
        growth=growth_of(config, part),
        spacing=np.array(part.of_times(spacing_of)),
    )
    joined = join_models([model, newcomers])
    return dataclasses.replace(joined, transform=transform)


def _scored_from(
    model: Model, panel: Panel, held_back: Int[np.ndarray, " series"]
) -> Shaped[np.ndarray, " series"]:
    """Return, for each series, the time from which errors of its forecasts calibrate its bands.

    No network has seen any row of these series, and classical models have not seen the rows held
    back. So the errors of the rows held back count, up to the memory of bands. Without classical
    models the errors of all rows count.
    """
    count = np.full(len(held_back), model.config.longest_validation)
    if model.transform.takes_any:
        count = np.clip(held_back, 1, count)
    latest = [times[-n:] for (_, times), n in zip(panel.rows(), count.tolist(), strict=True)]
    return np.array([times[0] for times in latest], model.fitted_until.dtype)


def match_panel(model: Model, panel: Panel, *, latest: bool = True) -> Panel:
    """Return the panel of the series that a model can forecast, with the model's channels.

    ``latest``: whether forecasts are made from the latest rows, which then must be as far apart as
    the rows of the fit

    Warns of the other series, and names them in ``skipped``. Raises ModelError when none is left or
    the panel lacks one of the channels.
    """
    panel = _with_market(model, _with_channels(model, panel))
    if panel.peers is None:
        panel = panel.with_peers(model.peers)
    reasons: dict[str, Skipped] = {}
    if model.networks.start is None and not model.transform.takes_any:
        unknown = [name for name in panel.ids if name not in set(model.ids)]
        reasons |= dict.fromkeys(unknown, Skipped(Kind.NO_NETWORK))
    reasons |= model.transform.reasons(panel)
    least = model.transform.rows_to_forecast(model.config.horizon)
    needed = max(model.config.rows_to_forecast, least)
    networked = set(model.ids)
    if model.transform.takes_any:
        least = 1
        of_networks = zip(model.ids, model.networks.networked, strict=True)
        networked = {name for name, one in of_networks if one}
    elif model.transform.learned.volatility is None:
        least = needed
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        enough = needed if name in networked else least
        if rows < enough:
            reasons[name] = Skipped(Kind.TOO_SHORT_TO_FORECAST, int(rows), enough)
    reasons |= _spaced_otherwise(model, panel) | behind_market(panel) if latest else {}
    skipped = {name: reasons[name] for name in panel.ids if name in reasons}
    known = [name for name in panel.ids if name not in skipped]
    if not known:
        name, reason = next(iter(skipped.items()))
        raise ModelError(f"no forecast can be made: {name}: {reason}")
    warn_of_skipped(skipped)
    _warn_of_unknown_state(model, panel)
    # Few series may not tell it, and covariates are those of the dates that are forecast.
    return dataclasses.replace(panel.only(known, skipped), frequency=model.frequency)


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
            f"the model was fitted on {listed(model.channels)}; these data lack "
            f"{listed(missing)}. Fit again, or forecast from the same kind of data"
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
    names = model.transform.market
    if not names:
        return panel
    if panel.market is not None and set(names) <= set(panel.market.ids):
        return panel.with_indices(names, forecast=panel.ids)
    if missing := [name for name in names if name not in panel.ids]:
        raise ModelError(
            f"the model's networks see the market {listed(names)} beside each series; these data "
            f"lack {listed(missing)}. Load the rows of {listed(missing)} too"
        )
    # An index is forecast too if it has networks, or if the panel holds no other series.
    nothing_else = set(panel.ids) == set(names)
    return panel.with_indices(names, forecast=panel.ids if nothing_else else model.ids)


def _warn_of_unknown_state(model: Model, panel: Panel) -> None:
    """Warn if a panel has too few peers for the state of the market: networks forecast alone."""
    there = 0 if panel.peers is None else len(panel.peers.ids)
    if not model.peers or there >= FEWEST_PEERS:
        return
    warnings.warn(
        f"bands do not follow the state of the market, which takes {FEWEST_PEERS} of the series "
        f"{', '.join(model.peers[:_NAMED])}, ... ({len(model.peers)} in all); these data have "
        f"{there} of them. `forecaster ingest` reads what is missing; in Python, forecast from "
        "panel.with_peers(panel.ids).only(names) of a panel with more series",
        ForecasterWarning,
        stacklevel=4,
    )
