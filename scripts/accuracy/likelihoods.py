"""Compare the likelihoods of exponential smoothing with those that statsforecast reaches.

    python scripts/accuracy/likelihoods.py --statsforecast PYTHON [--output likelihoods.csv]

Each form with additive errors is fitted to M1's known values (of the monthly series, every fourth),
by statsforecast's ``ets_f`` and by ours twice:

- ``own``: by the search of the package, which keeps the trend's weight below the level's, and the
  season's weight below one minus the level's
- ``stable``: by a search that bounds each weight by itself, as statsforecast does, and requires
  only that errors of the initial state do not grow

A row per frequency and form: ``series`` that statsforecast fits; ``near``, the share of them whose
likelihood is at most a thousandth lower than that of statsforecast; ``higher``, the share whose
likelihood is more than a thousandth higher. The rows "average" have in ``mase_1`` to ``mase_3`` the
MASE of the forecasts by the average of forms that each search leads to, with the last horizon
withheld, the last two and the last three.

``PYTHON`` is an interpreter that has statsforecast; ``FORECASTER_TEST_DATA`` names the folder with
``m1.parquet``.
"""

import argparse
import itertools
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from panels import PANELS, Panel

from forecaster.classical import ets
from forecaster.classical.ets import Form
from forecaster.classical.innovations import (
    Estimate,
    Lengths,
    Parameters,
    Values,
    _least_errors,
    estimate,
    squares_of,
    squares_on_grid,
)
from forecaster.classical.least_squares import least_squares

EVERY = {"M1 yearly": 1, "M1 quarterly": 1, "M1 monthly": 4}
TRENDS = {"N": "none", "A": "additive", "Ad": "damped"}
WORTH = 1e-3  # share of a likelihood that counts as a difference
ROUNDS, STARTS = 30, 2
THEIRS = """
import pickle, sys, warnings
from statsforecast.ets import ets_f
warnings.simplefilter("ignore")
rows, season, models = pickle.load(sys.stdin.buffer)
found = {}
for model in models:
    found[model] = []
    for row in rows:
        try:
            fit = ets_f(row, season, model=model.replace("d", ""), damped="d" in model)
            found[model].append(float(fit["loglik"]))
        except Exception:
            found[model].append(float("nan"))
pickle.dump(found, sys.stdout.buffer)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Likelihoods compared with statsforecast's.")
    parser.add_argument("--statsforecast", metavar="PYTHON", required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    made = []
    for name, every in EVERY.items():
        panel = PANELS[name]()
        rows = panel.filled()[::every]
        season = "N" if panel.season == 1 else "A"
        forms = {f"A{trend}{end}": (trend, end) for end in {"N", season} for trend in TRENDS}
        theirs = by_statsforecast(rows, panel.season, list(forms), options.statsforecast)
        for label, (trend, end) in sorted(forms.items()):
            form = Form(TRENDS[trend], panel.season if end == "A" else 1)
            made.append({"panel": name, "form": label, **shares(rows, form, theirs[label])})
            print(*made[-1].values(), flush=True)
        for search, its in {"own": estimate, "stable": stable}.items():
            mase = {f"mase_{n}": round(error(panel, its, n), 4) for n in (1, 2, 3)}
            made.append({"panel": name, "form": f"average, {search}", **mase})
            print(*made[-1].values(), flush=True)
        pd.DataFrame(made).to_csv(options.output, index=False)


def by_statsforecast(
    rows: list[np.ndarray], season: int, models: list[str], python: str
) -> dict[str, list[float]]:
    """Return the logarithm of each series' likelihood under each model; NaN where it fails."""
    given = pickle.dumps((rows, season, models))
    ran = subprocess.run([python, "-c", THEIRS], input=given, stdout=subprocess.PIPE, check=True)
    return pickle.loads(ran.stdout)


def shares(rows: list[np.ndarray], form: Form, theirs: list[float]) -> dict[str, float]:
    lengths = np.array([len(row) for row in rows])
    values = np.zeros((len(rows), lengths.max()))
    for number, row in enumerate(rows):
        values[number, : len(row)] = row - row[0]
    out: dict[str, float] = {"series": int(np.isfinite(theirs).sum())}
    for name, search in {"own": estimate, "stable": stable}.items():
        squares = search(values, lengths, form.space, form.grid(), form.bounds()).squares
        ours = -lengths / 2 * np.log(squares)
        gain = ((ours - theirs) / np.abs(theirs))[np.isfinite(theirs)]
        out |= {f"near_{name}": (gain >= -WORTH).mean(), f"higher_{name}": (gain > WORTH).mean()}
    return {key: round(value, 3) for key, value in out.items()}


def stable(
    values: Values,
    lengths: Lengths,
    space_of: Callable[[Parameters], object],
    grid: Parameters,
    bounds: np.ndarray,
) -> Estimate:
    """Return the best parameters within statsforecast's bounds; arguments as for ``estimate``."""
    form: Form = space_of.__self__  # pyright: ignore[reportFunctionMemberAccess]
    if not len(values):
        return estimate(values, lengths, form.space, grid, bounds)

    def errors_of(rows: np.ndarray, tried: Parameters) -> Values:
        return _least_errors(values[rows], lengths[rows], form.space(as_shares(form, tried)))

    def allowed(rows: np.ndarray, tried: Parameters) -> np.ndarray:
        del rows
        return is_stable(form, tried)

    found = []
    for start in starts(form, values, lengths):
        weights = least_squares(errors_of, start, bounds, ROUNDS, allowed=allowed)
        parameters = as_shares(form, weights)
        squares, initial = squares_of(values, lengths, form.space(parameters))
        found.append(Estimate(parameters, initial, squares))
    best = np.argmin([each.squares for each in found], axis=0)
    rows = np.arange(len(values))
    return Estimate(*(np.stack(part)[best, rows] for part in zip(*found, strict=True)))


def starts(form: Form, values: Values, lengths: Lengths) -> list[Parameters]:
    """Return weights to begin with: the best of the grid by trend, and four with a large season."""
    grid = form.grid()
    squares = squares_on_grid(values, lengths, form.space(grid))
    trended = [form.names.index(name) for name in ("trend", "damping") if name in form.names]
    _, group = np.unique(grid[:, trended], axis=0, return_inverse=True)
    groups = [np.flatnonzero(group == number) for number in np.unique(group)]
    least = np.stack([squares[:, rows].min(1) for rows in groups], axis=1)
    where = np.stack([rows[squares[:, rows].argmin(1)] for rows in groups], axis=1)
    where = np.take_along_axis(where, least.argsort(1)[:, :STARTS], axis=1)
    out = [as_weights(form, grid[column]) for column in where.T]
    for level, season in itertools.product((0.5, 0.95), (0.3, 0.7)) if form.season > 1 else ():
        other = out[0].copy()
        other[:, form.names.index("level")] = level
        other[:, form.names.index("season")] = season
        out.append(np.where(is_stable(form, other)[:, None], other, out[0]))
    return out


def as_weights(form: Form, shares: Parameters) -> Parameters:
    """Return the weights of an error in level, trend and season from a form's parameters."""
    return _scaled(form, shares, lambda share, whole: share * whole)


def as_shares(form: Form, weights: Parameters) -> Parameters:
    """Return a form's parameters from the weights of an error in level, trend and season."""
    return _scaled(form, weights, lambda weight, whole: weight / np.maximum(whole, 1e-9))


def _scaled(form: Form, parameters: Parameters, scale: Callable) -> Parameters:
    out, level = parameters.copy(), parameters[:, form.names.index("level")]
    for name, whole in (("trend", level), ("season", 1 - level)):
        if name in form.names:
            column = form.names.index(name)
            out[:, column] = scale(parameters[:, column], whole)
    return out


def is_stable(form: Form, weights: Parameters) -> np.ndarray:
    """Return whether errors of the initial state do not grow; seasons' sum of zero stays as is."""
    space = form.space(as_shares(form, weights))
    turned = space.transition - space.gain[:, :, None] * space.output[:, None]
    return np.abs(np.linalg.eigvals(turned)).max(1) <= 1 + (1e-8 if form.season > 1 else 0)


def error(panel: Panel, search: Callable[..., Estimate], withheld: int) -> float:
    """Return the MASE of the last horizon but ``withheld`` - 1, of series with two seasons."""
    horizon, season = panel.horizon, panel.season
    known, came = [], []
    for row, last in zip(panel.filled(), panel.came, strict=True):
        whole = np.concatenate([row, last])
        cut = len(whole) - withheld * horizon
        if cut > 2 * season and (season > 1 or cut >= 5):
            known.append(whole[:cut])
            came.append(whole[cut : cut + horizon])
    with mock.patch.object(ets, "estimate", search):
        averages = ets.fit_ets(known, season)
    ahead = ets.ets_ahead(known, averages, [len(row) for row in known], horizon)
    errors = [
        np.nanmean(np.abs(outcome - made[-1])) / np.abs(row[season:] - row[:-season]).mean()
        for row, outcome, made in zip(known, came, ahead, strict=True)
        if (row[season:] != row[:-season]).any()
    ]
    return float(np.mean(errors))


if __name__ == "__main__":
    main()
