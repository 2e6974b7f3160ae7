"""Compare the likelihoods of exponential smoothing with those that statsforecast reaches.

    python scripts/accuracy/likelihoods.py --statsforecast PYTHON [--output likelihoods.csv]

Each form with additive errors is fitted to M1's known values (of the monthly series, every fourth),
by statsforecast's ``ets_f`` and by ours twice:

- ``usual``: the trend's weight is below the level's, and the season's below one minus the level's
- ``admissible``: each weight is bounded by itself, as by statsforecast, and errors of the initial
  state must not grow

A row per frequency and form: ``series`` that statsforecast fits; ``near``, the share of them whose
likelihood is at most a thousandth lower than that of statsforecast; ``higher``, the share whose
likelihood is more than a thousandth higher. The rows "average" have in ``mase_1`` to ``mase_3`` the
MASE of the forecasts by the average of forms that each search leads to, with the last horizon
withheld, the last two and the last three.

``PYTHON`` is an interpreter that has statsforecast; ``FORECASTER_TEST_DATA`` names the folder with
``m1.parquet``.
"""

import argparse
import pickle
import subprocess
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd
from panels import PANELS, Panel

from forecaster.classical import ets_ahead, fit_ets
from forecaster.classical.admissible import admissible
from forecaster.classical.ets_form import Form
from forecaster.classical.innovations import Estimate, Lengths, Values, estimate

Bounds = Literal["usual", "admissible"]

EVERY = {"M1 yearly": 1, "M1 quarterly": 1, "M1 monthly": 4}
TRENDS = {"N": "none", "A": "additive", "Ad": "damped"}
WORTH = 1e-3  # share of a likelihood that counts as a difference
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
        for bounds in get_args(Bounds):
            mase = {f"mase_{n}": round(error(panel, bounds, n), 4) for n in (1, 2, 3)}
            made.append({"panel": name, "form": f"average, {bounds}", **mase})
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
    for bounds in get_args(Bounds):
        ours = -lengths / 2 * np.log(fitted(form, values, lengths, bounds).squares)
        gain = ((ours - theirs) / np.abs(theirs))[np.isfinite(theirs)]
        out[f"near_{bounds}"] = (gain >= -WORTH).mean()
        out[f"higher_{bounds}"] = (gain > WORTH).mean()
    return {key: round(value, 3) for key, value in out.items()}


def fitted(form: Form, values: Values, lengths: Lengths, bounds: Bounds) -> Estimate:
    if bounds == "admissible":
        return admissible(form, values, lengths)
    return estimate(values, lengths, form.space, form.grid(), form.bounds())


def error(panel: Panel, bounds: Bounds, withheld: int) -> float:
    """Return the MASE of the last horizon but ``withheld`` - 1, of series with two seasons."""
    horizon, season = panel.horizon, panel.season
    known, came = [], []
    for row, last in zip(panel.filled(), panel.came, strict=True):
        whole = np.concatenate([row, last])
        cut = len(whole) - withheld * horizon
        if cut > 2 * season and (season > 1 or cut >= 5):
            known.append(whole[:cut])
            came.append(whole[cut : cut + horizon])
    averages = fit_ets(known, season, bounds=bounds)
    ahead = ets_ahead(known, averages, [len(row) for row in known], horizon)
    errors = [
        np.nanmean(np.abs(outcome - made[-1])) / np.abs(row[season:] - row[:-season]).mean()
        for row, outcome, made in zip(known, came, ahead, strict=True)
        if (row[season:] != row[:-season]).any()
    ]
    return float(np.mean(errors))


if __name__ == "__main__":
    main()
