"""Exponential smoothing and Theta as baselines: bands, seasons, company, and short series."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.evaluation import baselines
from forecaster.evaluation.baselines import BASELINES, simple
from forecaster.evaluation.baselines.simple import Job
from tests.messages import warns

NAMES = [name for name, baseline in BASELINES.items() if baseline.together]
QUANTILES = np.array([0.1, 0.5, 0.9])


def walks(count: int, steps: int, seed: int = 0) -> list[np.ndarray]:
    """Levels that errors move by 0.4 of themselves, far above zero."""
    random = np.random.default_rng(seed)
    error = random.normal(size=(count, steps))
    moved = 0.4 * np.cumsum(error, axis=1)
    return list(1000 + error + np.pad(moved, ((0, 0), (1, 0)))[:, :-1])


@pytest.mark.parametrize("name", NAMES)
def test_bands_hold_what_they_say_at_every_horizon(name):
    """A level of exponential smoothing is what each of these models can hold."""
    horizon, origin = 6, 150
    rows, origins = walks(300, origin + horizon + 1), np.array([origin])
    some = [Job(y, origins, horizon, QUANTILES, 1) for y in rows]
    made = np.array(getattr(simple, name)(some))[:, 0]
    came = np.array([job.y[origin + 1 :] for job in some])
    inside = ((made[..., 0] < came) & (came < made[..., 2])).mean(0)
    np.testing.assert_allclose(inside, 0.8, atol=0.08)
    width = (made[..., 2] - made[..., 0]).mean(0) / (2 * 1.2816)
    truth = np.sqrt(1 + 0.16 * np.arange(horizon))
    np.testing.assert_allclose(width, truth, rtol=0.12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_where_too_few_values_are_known_there_is_no_forecast_and_it_is_said(name):
    y = np.r_[1.0, 2, 4, 3, walks(1, 40)[0]]
    panel = fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": np.arange(len(y)), "y": y}))
    with warns(ForecasterWarning):
        made = baselines.forecast(panel, [2, 30], name, horizon=2)
    assert made.iloc[:2, 4:].isna().all(axis=None)
    # The model is that of an evaluation which begins where enough values are known.
    later = baselines.forecast(panel, [30], name, horizon=2)
    np.testing.assert_array_equal(made.iloc[2:, 4:], later.iloc[:, 4:])
