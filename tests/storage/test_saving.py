"""A model is saved and read as it was, in each encoding."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError, WriteError
from forecaster.files import Home
from forecaster.forecasting.config import ENCODINGS
from forecaster.storage import METHODS, Encoding, load, save
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


@pytest.mark.parametrize("encoding", [*METHODS.values(), Encoding("float16", 0.3, "float16")])
def test_what_is_written_is_read(encoding):
    random = np.random.default_rng(0)
    arrays = {
        "params/a/kernel": random.normal(size=(3, 5, 7)).astype(np.float32),
        "params/a/bias": random.normal(size=(3, 7)).astype(np.float32),
        "scores": random.normal(size=(3, 20, 2)).astype(np.float32),
    }
    arrays["params/a/kernel"][1, :, 2] = 0.0  # a column without any weight
    written = encoding.write(arrays)
    read = {n: encoding.read(n, leaf.shape, written) for n, leaf in arrays.items() if n != "scores"}
    np.testing.assert_array_equal(read["params/a/bias"], arrays["params/a/bias"])
    kernel, again = arrays["params/a/kernel"], read["params/a/kernel"]
    kept = again != 0
    most = {"float32": 0.0, "float16": 1e-3, "int8": 1 / 127}[encoding.weights]
    largest = np.abs(kernel).max(axis=1, keepdims=True)
    assert (
        np.abs(again - kernel)[kept] <= most * np.broadcast_to(largest, kernel.shape)[kept]
    ).all()
    for one, other in zip(kernel, again, strict=True):
        lost = np.abs(one[other == 0])
        assert (other == 0).sum() >= int(encoding.pruned * one.size)
        if encoding.weights == "float32" and encoding.pruned:
            assert lost.max() <= np.abs(one[other != 0]).min()
    np.testing.assert_allclose(written["scores"], arrays["scores"], rtol=1e-3, atol=1e-3)


def test_a_model_is_smaller_and_forecasts_nearly_the_same(model, panel, tmp_path):
    plain = save(model, tmp_path / "plain")
    config = dataclasses.replace(model.config, encoding="small")
    networks = dataclasses.replace(model.networks, config=config)
    small = save(dataclasses.replace(model, networks=networks), tmp_path / "small")
    sizes = [(run / "model.safetensors").stat().st_size for run in (plain, small)]
    assert sizes[1] < 0.6 * sizes[0]
    plain_forecast, forecast = fc.predict(load(plain), panel), fc.predict(load(small), panel)
    np.testing.assert_allclose(forecast["LSTM"], plain_forecast["LSTM"], rtol=1e-3)
    width = (plain_forecast["LSTM-hi-80"] - plain_forecast["LSTM-lo-80"]).to_numpy()
    np.testing.assert_allclose(forecast["LSTM-hi-80"] - forecast["LSTM-lo-80"], width, rtol=2e-2)
    text = (small / "model.json").read_text()
    (small / "model.json").write_text(text.replace('"int8"', '"int3"'))
    with refuses(ModelError):
        load(small)


def test_the_settings_name_every_encoding():
    assert list(METHODS) == list(ENCODINGS)
    with refuses(UsageError):
        fc.Config(encoding="int4")
