"""Forecast sums of series, such as sectors, portfolios, stores or regions, from joint paths."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np
import pandas as pd

from forecaster.errors import (
    Kind,
    ModelError,
    Skipped,
    UsageError,
    listed,
    name_reasons,
    spelled,
    spellings,
    wrong_argument,
)
from forecaster.forecasting.bands.columns import (
    check_levels,
    check_quantiles,
    shares_of,
)
from forecaster.forecasting.model import Model
from forecaster.forecasting.predicting.forecast import RISE, price_factor
from forecaster.forecasting.predicting.predicting import prepared
from forecaster.forecasting.predicting.simulating import Paths, draw_paths
from forecaster.ingest import ColumnOptions, Table
from forecaster.series import Panel, findings_of, say_findings, show_time

GroupWeights: TypeAlias = Mapping[str, Mapping[str, float]]
"""By group, the weight of each of its series."""
USUAL_PATHS = 2000
SERIES = "series"
"""The column with the number of series in a group."""
_BEYOND = 5  # number of paths that a quantile needs beyond it


def predict_sums(
    model: Model,
    panel: Panel | Table,
    groups: GroupWeights | pd.DataFrame,
    level: Sequence[float] = (80, 95),
    quantiles: Sequence[float] = (),
    *,
    n_paths: int = USUAL_PATHS,
    seed: int = 0,
    **columns: Unpack[ColumnOptions],
) -> pd.DataFrame:
    """Forecast the sums of groups of series, with bands that know how series move together.

    Returns a long frame with the columns of :func:`predict`, where ``unique_id`` is the group, and
    ``mean`` and ``series``, the number of series in the group. Sums are taken over the same futures
    that :func:`simulate` draws with this seed, so groups and their parts agree: the ``mean`` of a
    group is the sum of the means of its parts.

    - ``model, panel, level, quantiles, columns``: as for :func:`predict`
    - ``groups``: by group, the weight of each of its series, such as the shares held; or a frame
      with the columns ``unique_id``, ``group``, and optionally ``weight``, which is 1 by default
    - ``n_paths``, ``seed``: as for :func:`simulate`

    Raises UsageError for groups that cannot be read, for a band that so few paths cannot show, and
    ModelError where a series of a group has no forecast, or no time has forecasts of all.
    """
    weights = _weights_of(groups)
    level, quantiles = check_levels(level), check_quantiles(quantiles)
    check_paths(n_paths, level, quantiles)
    model, panel = prepared(model, panel, **columns)
    say_findings(findings_of(panel, forecasting=True), len(panel.ids))
    paths = draw_paths(model, panel, n_paths, seed)
    weights, missing = possible_sums(paths, weights)
    if missing:
        raise ModelError(f"groups that cannot be summed:\n{name_reasons(missing)}")
    return sums_of(paths, weights, model.config.column, level, quantiles)


def possible_sums(
    paths: Paths, groups: GroupWeights
) -> tuple[dict[str, dict[str, float]], dict[str, Skipped]]:
    """Return the groups that have a forecast of each series, and why the others have none.

    In the groups returned, series are named as in the paths.
    """
    known = spellings(paths.panel.ids)
    rows = {name: row for row, name in enumerate(paths.panel.ids)}
    possible: dict[str, dict[str, float]] = {}
    missing: dict[str, Skipped] = {}
    for group, weights in groups.items():
        names = {name: spelled(known, name) for name in weights}
        lacking = [name for name, found in names.items() if found is None]
        if lacking:
            detail = f"{len(lacking)} of its {len(names)} series have no forecast: "
            missing[group] = Skipped(Kind.OTHER, detail=detail + listed(lacking))
            continue
        its = {str(found): weights[name] for name, found in names.items()}
        times = paths.times[[rows[name] for name in its]]
        if not len(functools.reduce(np.intersect1d, times)):
            first, last = (show_time(pick(times[:, 0])) for pick in (np.min, np.max))
            detail = (
                "its series end at different times, so no time has a forecast of all of them: the "
                f"forecasts begin between {first} and {last}"
            )
            missing[group] = Skipped(Kind.OTHER, detail=detail)
            continue
        possible[group] = its
    return possible, missing


def sums_of(
    paths: Paths,
    groups: GroupWeights,
    name: str,
    level: Sequence[float],
    quantiles: Sequence[float],
) -> pd.DataFrame:
    """Return the sums of groups over paths, as :func:`predict_sums` does.

    - ``groups``: from :func:`possible_sums`
    - ``name``: the name of the column of medians
    """
    rows = {series: row for row, series in enumerate(paths.panel.ids)}
    shares = shares_of(name, level, quantiles)
    # Prices as quoted.
    latest = np.array([values[-1] for values, _ in paths.panel.rows()]) * price_factor(paths.panel)
    parts: list[pd.DataFrame] = []
    for group, weights in groups.items():
        its = [rows[series] for series in weights]
        amounts = np.array(list(weights.values()), float)
        shared = functools.reduce(np.intersect1d, paths.times[its])  # that all of them have
        steps = np.stack([np.flatnonzero(np.isin(times, shared)) for times in paths.times[its]])
        values = np.take_along_axis(paths.values[its], steps[:, None, :], axis=2)
        total = np.einsum("s,sph->ph", amounts, values)
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": group,
                    "ds": shared,
                    **dict(zip(shares, np.quantile(total, [*shares.values()], 0), strict=True)),
                    RISE: (total > amounts @ latest[its]).mean(0),
                    "mean": total.mean(0),
                    SERIES: len(its),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def check_paths(n_paths: int, level: Sequence[float], quantiles: Sequence[float]) -> None:
    """Raise UsageError for a band or a quantile that lies beyond the outermost paths."""
    tails = [(1 - percent / 100) / 2 for percent in level]
    tails += [min(share, 1 - share) for share in quantiles]
    needed = int(np.ceil(round(_BEYOND / min(tails, default=1.0), 6)))
    if isinstance(n_paths, int | np.integer) and 0 < n_paths < needed:
        raise UsageError(
            f"paths: expected {needed:,} or more, of which {_BEYOND} lie beyond the outermost "
            f"quantile; got {n_paths:,}. Draw more paths, or ask for narrower bands"
        )


def _weights_of(groups: GroupWeights | pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the weights by group. Raises UsageError for anything else."""
    given: Any = groups
    if isinstance(groups, pd.DataFrame) and {"unique_id", "group"}.issubset(groups):
        frame = groups if "weight" in groups else groups.assign(weight=1.0)
        frame = frame.assign(group=frame["group"].map(str))  # also of a group without a name
        twice = frame.duplicated(["unique_id", "group"])
        if twice.any():
            name, group = frame.loc[twice, ["unique_id", "group"]].iloc[0]
            raise UsageError(f"groups: {name} is twice in {group}; add up its weights")
        given = {
            group: its.set_index("unique_id")["weight"].to_dict()
            for group, its in frame.groupby("group", sort=False)
        }
    if not (
        isinstance(given, Mapping)
        and given
        and all(isinstance(its, Mapping) and its for its in given.values())
    ):
        expected = (
            "the weights of series by group, such as {'tech': {'AAPL': 10, 'MSFT': 5}}, or a frame "
            "with the columns unique_id, group and perhaps weight"
        )
        raise wrong_argument("groups", groups, expected)
    return {
        str(group): {str(name): _weight(group, name, weight) for name, weight in its.items()}
        for group, its in given.items()
    }


def _weight(group: object, name: object, weight: Any) -> float:
    try:
        if np.isfinite(float(weight)) and weight:
            return float(weight)
    except (TypeError, ValueError):
        pass
    raise wrong_argument(f"groups: {group}: weight of {name}", weight, "a number other than 0")
