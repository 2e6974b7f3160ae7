"""Smaller files of a model: what they cost is said, and nothing is recommended that costs more."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError
from forecaster.storage import load, save
from forecaster.storage.model import compression


def test_a_model_is_smaller_and_forecasts_nearly_the_same(model, panel, tmp_path):
    plain = save(model, tmp_path / "plain")
    small = save(model, tmp_path / "small", compression.METHODS["small"])
    sizes = [(run / "model.safetensors").stat().st_size for run in (plain, small)]
    assert sizes[1] < 0.6 * sizes[0]
    plain_forecast, forecast = fc.predict(load(plain), panel), fc.predict(load(small), panel)
    np.testing.assert_allclose(forecast["LSTM"], plain_forecast["LSTM"], rtol=1e-3)
    width = (plain_forecast["LSTM-hi-80"] - plain_forecast["LSTM-lo-80"]).to_numpy()
    np.testing.assert_allclose(forecast["LSTM-hi-80"] - forecast["LSTM-lo-80"], width, rtol=2e-2)
    text = (small / "model.json").read_text()
    (small / "model.json").write_text(text.replace('"int8"', '"int3"'))
    with pytest.raises(ModelError, match="not a model of this program"):
        load(small)


def test_the_comparison_is_of_what_it_says(model, panel):
    rows: dict[Any, Any] = compression.compare(model, panel).set_index("method").to_dict("index")
    assert rows["none"]["crps"] == 1.0 and rows["none"]["size"] == 1.0
    assert not rows["none"]["recommended"]
    assert rows["int8"]["bytes"] < rows["float16"]["bytes"] < rows["none"]["bytes"]
    networks = dataclasses.replace(model.networks, params=_noisy(model.params))
    noise = dataclasses.replace(model, networks=networks)
    held = compression._held_back(model, panel)
    worse = compression._crps(noise, panel, held) > compression._crps(model, panel, held)
    assert worse.mean() > 0.5


def _noisy(tree) -> Any:
    if isinstance(tree, dict):
        return {name: _noisy(leaf) for name, leaf in tree.items()}
    return tree + np.random.default_rng(0).normal(0, 1, tree.shape).astype(np.float32)


def test_the_command_offers_every_method():
    from forecaster.cli.compress import _METHODS

    assert list(_METHODS) == [name for name in compression.METHODS if name != "none"]


def test_nothing_is_recommended_that_costs_more_than_it_saves():
    good = {"method": "a", "bytes": 50, "recommended": True}
    rows = pd.DataFrame([good, good | {"method": "b", "bytes": 40},
                         good | {"method": "c", "bytes": 30, "recommended": False}])  # fmt: skip
    assert compression.recommend(rows) == "b"
    assert compression.recommend(rows.assign(recommended=False)) is None


def test_the_crps_of_a_t_distribution_is_that_of_its_samples():
    random = np.random.default_rng(0)
    for dof, location, scale, actual in [(3.0, 0.5, 2.0, 1.0), (8.0, -1.0, 0.3, 1.0)]:
        draws = location + scale * random.standard_t(dof, (2, 400_000))
        expected = np.abs(draws[0] - actual).mean() - 0.5 * np.abs(draws[0] - draws[1]).mean()
        got = compression.student_t_crps(actual, location, scale, np.array(dof))
        assert got == pytest.approx(expected, rel=0.01)
    point = compression.student_t_crps(np.array(3.0), np.array(1.0), np.array(1.0), np.inf)
    assert point == 2.0
