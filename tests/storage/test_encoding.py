"""Arrays that are written in fewer bytes are read as they were, within what the type holds."""

import dataclasses

import numpy as np
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from forecaster.forecasting.config import ENCODINGS
from forecaster.storage import METHODS, Encoding, load, save
from tests.messages import refuses


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
