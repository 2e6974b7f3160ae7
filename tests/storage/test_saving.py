"""Models on disk: the same forecasts after loading, and a clear word about every kind of damage."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, WriteError
from forecaster.files import Home
from tests.messages import refuses


@pytest.fixture
def saved(model, tmp_path):
    return fc.save(model, tmp_path / "run")


def test_a_loaded_model_predicts_the_same_bits(panel, model, saved):
    again = fc.load(saved)
    assert again.config == model.config and again.ids == model.ids
    assert again.frequency == model.frequency and again.transform == model.transform
    pd.testing.assert_frame_equal(
        fc.predict(again, panel), fc.predict(model, panel), check_exact=True
    )
    pd.testing.assert_frame_equal(again.report, model.report, check_dtype=False)


def test_series_that_count_in_whole_numbers_survive(tmp_path):
    y = np.cumsum(np.random.default_rng(0).normal(size=80)) + 50
    panel = fc.load_panel(pd.DataFrame({"unique_id": "s", "ds": np.arange(80), "y": y}))
    model = fc.fit(panel, fc.Config(model="theta", horizon=3))
    frame = fc.predict(fc.load(fc.save(model, tmp_path / "run")), panel)
    assert frame["ds"].tolist() == [80, 81, 82]
    pd.testing.assert_frame_equal(frame, fc.predict(model, panel), check_exact=True)


def test_a_missing_model_says_what_to_do(tmp_path):
    with refuses(ModelError):
        fc.load(tmp_path / "nothing")
    with refuses(ModelError):
        Home(tmp_path).latest_run()


def test_nothing_is_overwritten_and_nothing_half_written_stays(model, saved, tmp_path, monkeypatch):
    with refuses(ModelError):
        fc.save(model, saved)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with refuses(WriteError):
        fc.save(model, tmp_path / "models" / "second")
    assert list((tmp_path / "models").iterdir()) == []
