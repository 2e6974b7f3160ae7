"""From a config to trained networks, and the search of each series' own settings."""

import dataclasses

import pandas as pd
import pytest

import forecaster as fc
from forecaster import swarm
from forecaster.forecasting.fitting.training import candidates
from tests.conftest import error, prices, run


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


@pytest.mark.slow
def test_a_search_from_the_command_line_can_be_interrupted(monkeypatch, tmp_path, settings):
    from forecaster.swarm.execution.schedule import Schedule

    few = swarm.grid_candidates(learning_rate=[1e-3, 1e-2, 3e-2], weight_decay=[0.0], hidden=[4])
    monkeypatch.setattr("forecaster.forecasting.fitting.training.candidates", lambda config: few)
    for number, name in enumerate(["AAA", "BBB"]):
        prices(name, 300 + number).to_csv(tmp_path / f"{name}.csv", index=False)
    source = ("--source", f"files:{tmp_path}", "--config", settings, "--epochs", 9)
    whole = run("fit", *source, "--tune", "--home", tmp_path / "whole")
    assert whole.exit_code == 0 and "Chose hidden" in whole.stdout
    forecast = run("predict", "--all", "--format", "csv", "--home", tmp_path / "whole").stdout

    calls, advance = [], Schedule.advance

    def interrupted(self):
        calls.append(1)
        if len(calls) == 3:  # in the second rung
            raise KeyboardInterrupt
        advance(self)

    home = tmp_path / "home"
    with monkeypatch.context() as patch:
        patch.setattr(Schedule, "advance", interrupted)
        assert "fit --resume" in error("fit", *source, "--tune", "--home", home, code=130)
    assert run("fit", "--resume", "--home", home).exit_code == 0
    assert run("predict", "--all", "--format", "csv", "--home", home).stdout == forecast
