"""From a config to trained networks, and the search of each series' own settings."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting.fitting.training import candidates


@pytest.fixture(scope="module")
def tuned(panel, config):
    return fc.fit(panel, dataclasses.replace(config, epochs=6), seed=1, tune=True)


@pytest.mark.slow
def test_each_series_searches_its_own_settings(tuned, panel, config, tmp_path):
    report = tuned.report
    tried = {(c["hidden"], c["learning_rate"], c["weight_decay"]) for c in candidates(config)}
    assert len(tried) == 18
    for _, row in report.iterrows():
        assert (row["hidden"], row["learning_rate"], row["weight_decay"]) in tried
    assert tuned.config.hidden == report["hidden"].max()
    assert (report["epochs_tried"] > report["epochs"]).all()
    # The reported losses belong to the networks that were kept: they forecast as they did then.
    plain = fc.fit(panel, dataclasses.replace(config, epochs=6), seed=1)
    better = report["validation_loss"] <= plain.report["validation_loss"] + 1e-4
    assert better.mean() >= 0.8  # its own settings were among the candidates, given up or not
    frame = fc.predict(tuned, panel)
    folder = fc.save(tuned, tmp_path / "model")
    pd.testing.assert_frame_equal(fc.predict(fc.load(folder), panel), frame)


def test_networks_trained_on_one_series_are_its_own(panel, config):
    config = dataclasses.replace(config, start="pooled", epochs=1, members=2)
    networks = fc.fit(panel.only(panel.ids[:1]), config, seed=1).networks
    for own, common in zip(*map(jax.tree.leaves, (networks.params, networks.start)), strict=True):
        np.testing.assert_array_equal(own[0], common)
    assert networks.report["epochs"].tolist() == [1] and networks.computed
