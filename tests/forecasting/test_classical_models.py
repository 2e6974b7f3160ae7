"""A classical model alone, asked for by name."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.classical import MODELS
from tests.frames import long
from tests.slow import rest_slow

HORIZON = 6


def seasonal(count: int = 5, rows: int = 72, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    month = np.arange(rows)
    level = 100 + random.normal(0.5, 0.2, (count, 1)) * month
    y = level + 10 * np.sin(month * np.pi / 6) + random.normal(size=(count, rows)).cumsum(1)
    days = pd.date_range("2018-01-31", periods=rows, freq="ME")
    return long({f"s{n}": row for n, row in enumerate(y)}, days)


@pytest.mark.parametrize("name", rest_slow(["theta", "ets", "ces"]))
def test_the_forecast_is_that_of_the_model_alone(name, tmp_path):
    frame = seasonal()
    short = pd.DataFrame({"unique_id": "short", "ds": frame["ds"].iloc[:2], "y": [3.0, 4.0]})
    panel = fc.load_panel(pd.concat([frame, short]))
    model = fc.fit(panel, fc.Config(model=name, horizon=HORIZON))
    assert not model.networks.trained.any()
    made = fc.predict(model, panel)
    assert list(made)[2:5] == [name.upper(), f"{name.upper()}-lo-80", f"{name.upper()}-hi-80"]
    long = made[made["unique_id"] != "short"]
    assert (long["forecast_by"] == name).all()
    assert made["forecast_by"].iloc[-1] == "last value"
    rows = [part.to_numpy() for _, part in frame.groupby("unique_id")["y"]]
    fit, ahead, *_ = MODELS[name].functions
    made_by_row = ahead(rows, fit(rows, 12), list(map(len, rows)), HORIZON)
    expected = [one[-1] for one in made_by_row]
    np.testing.assert_allclose(long[name.upper()], np.ravel(expected), rtol=1e-9)
    loaded = fc.load(fc.save(model, tmp_path / "run"))
    pd.testing.assert_frame_equal(fc.predict(loaded, panel), made, check_exact=True)
    past = fc.cross_validation(frame, fc.Config(model=name, horizon=HORIZON), n_windows=2)
    assert np.isfinite(past[name.upper()]).all()


MEAN = """
from forecaster.classical.models import Functions
import numpy as np

def ahead(rows, means, learned, horizon):
    return [np.full((len(row), horizon), mean) for row, mean in zip(rows, means)]

MODEL = Functions(lambda rows, season: [float(row.mean()) for row in rows], ahead, float, 0.0)
"""
ONE_ROW = """
from forecaster.classical.models import MODELS, ClassicalModel
MODELS["average"] = ClassicalModel("mean_model", blended=False)

import forecaster as fc
import numpy as np
from tests.forecasting.test_classical_models import seasonal
frame, folder = seasonal(2), "run"
model = fc.fit(frame, fc.Config(model="average", horizon=2))
made = fc.predict(fc.load(fc.save(model, folder)), frame)
assert (made["forecast_by"] == "average").all()
means = frame.groupby("unique_id")["y"].mean()
np.testing.assert_allclose(made["AVERAGE"], means[made["unique_id"]], rtol=1e-9)
"""


def test_a_model_is_one_file_and_one_row_of_the_table(tmp_path):
    (tmp_path / "mean_model.py").write_text(MEAN)
    command = [sys.executable, "-W", "ignore", "-c", ONE_ROW]
    path = {"PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{tmp_path}"}
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, **path})
