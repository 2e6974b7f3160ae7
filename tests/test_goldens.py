"""Forecasts of eight invented panels are those that ``scripts/goldens.py`` wrote."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import script

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "goldens.py"

goldens = script("goldens.py")

PRICES = "prices pooled"
NUMBERS = [name for name in goldens.read(PRICES) if name.startswith("LSTM")]


@pytest.mark.parametrize("name", goldens.CASES)
def test_forecasts_are_the_committed_ones(name):
    change = goldens.change(goldens.read(name), goldens.made(goldens.CASES[name]))
    assert change <= goldens.TOLERANCE, (
        f"forecasts of {name!r} have changed by {change:.3g} widths of their 80 % band. If they "
        "are meant to, renew them with `python scripts/goldens.py --write`, and quote its table "
        "in the commit"
    )


def widened(frame):
    """Make the bands 3 % wider, around the medians."""
    for name in NUMBERS:
        frame[name] = frame["LSTM"] + 1.03 * (frame[name] - frame["LSTM"])
    return frame


def rescaled(frame):
    """Forecast one series with a scale that is 0.1 % too large."""
    one = frame["unique_id"] == "s03"
    frame.loc[one, NUMBERS] *= 1.001
    return frame


def rounded(frame):
    """Round as another processor might: by up to a millionth of the band's width."""
    width = frame["LSTM-hi-80"] - frame["LSTM-lo-80"]
    frame[NUMBERS] += 1e-6 * np.outer(width, np.resize([1, -1, 0.5], len(NUMBERS)))
    return frame


def unlikely(frame):
    return frame.assign(probability_of_rise=frame["probability_of_rise"] + 1e-4)


@pytest.mark.parametrize("broken", [widened, rescaled, unlikely])
def test_a_broken_forecast_is_found(broken):
    assert goldens.change(goldens.read(PRICES), broken(goldens.read(PRICES))) > goldens.TOLERANCE


def test_rounding_is_not_a_change():
    assert 0 < goldens.change(goldens.read(PRICES), rounded(goldens.read(PRICES))) < 2e-6


def test_what_a_forecast_rests_on_and_missing_rows_are_changes():
    golden = goldens.read("short")
    for broken in (
        golden.iloc[1:].reset_index(drop=True),
        golden.assign(forecast_by="ets"),
        golden.assign(LSTM=np.nan),
        golden.drop(columns="LSTM-q-0.6"),
    ):
        assert goldens.change(golden, broken) == np.inf


@pytest.mark.slow
def test_a_commit_has_the_bits_of_itself():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    ran = subprocess.run(
        [sys.executable, SCRIPT, "short", "--beside", "HEAD"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "short" in ran.stdout and "0 widths" in ran.stdout
