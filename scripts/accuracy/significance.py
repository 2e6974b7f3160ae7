"""Measure how often the tests of an evaluation find differences where there are none.

    python scripts/accuracy/significance.py [--draws 1000] [--output significance.csv] [--quick]

Each draw is an evaluation of a hundred series from every step, whose forecasts differ but are
equally good. A loss ahead by a horizon is made of the shocks of all its steps, so that it shares
all but one of them with the next; shocks have a correlation of 0.3 between series. Losses are

- ``normal``: sums of normal shocks, as for forecasts that are too high and too low by the same
- ``heavy tails``: the same of Student-t shocks with four degrees of freedom
- ``volatility``: the same of shocks times a volatility common to all series (a GARCH(1,1) process)
- ``widths``: the difference in CRPS between normal bands too narrow and too wide, which is skewed,
  times the volatility at the cutoff
- ``regimes``: normal shocks around a mean that changes slowly, for all series together. Such
  forecasts are equal in the long run only: one is better for months, then the other. It is the
  same for the five models of a set

A row per kind of losses, number of cutoffs and horizon:

- ``rejected``: the share of series on which the test of Diebold and Mariano rejects at 5 %
- ``any``: the share of evaluations in which at least one of the hundred series is significant while
  the false discovery rate is held at 5 %
- ``left_out``: the share of model confidence sets of 95 % that lack any of five equal models

All are empty where there is no p-value, since there are too few cutoffs.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.signal import lfilter
from scipy.special import ndtr

from forecaster.evaluation.scores.confidence import p_values_of_set
from forecaster.evaluation.scores.significance import diebold_mariano, false_discovery

LOSSES = ("normal", "heavy tails", "volatility", "widths", "regimes")
SIZES = ((20, 1), (60, 1), (250, 1), (60, 5), (250, 5), (60, 10), (250, 10), (60, 21), (250, 21))
SERIES, MODELS, LEVEL = 100, 5, 0.05
BURN_IN = 100
NARROW, WIDE = 0.7, 1.353  # standard deviations whose CRPS is equal, on average, where one is right


def main() -> None:
    parser = argparse.ArgumentParser(description="How often tests reject where nothing differs.")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        options.draws, options.output = 2, Path(tempfile.mkdtemp()) / options.output.name
    rows = []
    for losses in LOSSES:
        for cutoffs, horizon in SIZES:
            random = np.random.default_rng([cutoffs, horizon])
            found = [
                rejections(drawn_losses(losses, random, cutoffs, horizon), horizon - 1)
                for _ in range(options.draws)
            ]
            row = {"losses": losses, "cutoffs": cutoffs, "horizon": horizon}
            rows.append(row | pd.DataFrame(found).mean().round(4).to_dict())
            print(*rows[-1].values(), flush=True)
    pd.DataFrame(rows).to_csv(options.output, index=False)


def drawn_losses(kind: str, random: np.random.Generator, cutoffs: int, horizon: int) -> np.ndarray:
    """Return losses (cutoff, series)."""
    steps = BURN_IN + cutoffs + horizon

    def draw(*shape: int) -> np.ndarray:
        if kind in ("heavy tails", "volatility"):
            return random.standard_t(4, shape) / np.sqrt(2)
        return random.standard_normal(shape)

    shocks = np.sqrt(0.3) * draw(steps, 1) + np.sqrt(0.7) * draw(steps, SERIES)
    moves = volatility(draw(steps))[:, None]
    if kind == "volatility":
        shocks *= moves
    if kind == "regimes":
        shocks += 0.3 * slow(draw(steps))[:, None]
    sums = shocks[BURN_IN:].cumsum(0)
    sums = (sums[horizon:] - sums[:-horizon]) / np.sqrt(horizon)
    if kind == "widths":
        return moves[BURN_IN:-horizon] * (normal_crps(sums, NARROW) - normal_crps(sums, WIDE))
    return sums


def normal_crps(actual: np.ndarray, deviation: float) -> np.ndarray:
    """Return the CRPS of a normal forecast around zero."""
    z = actual / deviation
    inner = z * (2 * ndtr(z) - 1) + np.sqrt(2 / np.pi) * np.exp(-z * z / 2) - 1 / np.sqrt(np.pi)
    return deviation * inner


def slow(shocks: np.ndarray) -> np.ndarray:
    """Return an autoregression of variance one, of which half is left after 34 steps."""
    return np.asarray(lfilter([np.sqrt(1 - 0.98**2)], [1, -0.98], shocks))


def volatility(shocks: np.ndarray) -> np.ndarray:
    """Return the volatility of each step, by a GARCH(1,1) process with these shocks."""
    variance = np.ones(len(shocks))
    for step in range(1, len(shocks)):
        variance[step] = 0.02 + variance[step - 1] * (0.9 + 0.08 * shocks[step - 1] ** 2)
    return np.sqrt(variance)


def rejections(losses: np.ndarray, lags: int) -> dict[str, float]:
    """Return what is found in an evaluation; each series is compared with losses of nothing."""
    nothing = np.zeros(len(losses))
    p = np.array([diebold_mariano(each, nothing, lags).p_value for each in losses.T])
    in_set = p_values_of_set(pd.DataFrame(losses[:, :MODELS]), lags)
    if np.isnan(p).any():
        return dict.fromkeys(("rejected", "any", "left_out"), np.nan)
    return {
        "rejected": (p < LEVEL).mean(),
        "any": float((false_discovery(p) < LEVEL).any()),
        "left_out": float((in_set <= LEVEL).any()),
    }


if __name__ == "__main__":
    main()
