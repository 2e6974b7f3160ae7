"""Fit on simulated prices: the invariants of the design, end to end."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, Kind, Skipped
from forecaster.forecasting.fitting.training import candidates
from forecaster.series.panel.panel import Panel
from tests.conftest import TICKERS
from tests.messages import refuses
from tests.slow import slow
from tests.swarm.test_fitting import same
from tests.swarm.test_shards import Elsewhere


def forecasts(panel, config, seed=1) -> pd.DataFrame:
    return fc.predict(fc.fit(panel, config, seed), panel).set_index(["unique_id", "ds"])


def test_the_same_seed_gives_the_same_bits(panel, config):
    pd.testing.assert_frame_equal(
        forecasts(panel, config), forecasts(panel, config), check_exact=True
    )
    assert not forecasts(panel, config).equals(forecasts(panel, config, seed=2))


@pytest.mark.slow
@pytest.mark.usefixtures("as_for_users")
def test_no_series_is_changed_by_the_others(panel, config):
    """Invariant 3: one removed, one edited, all permuted, one much longer than the rest."""
    everyone = forecasts(panel, config)
    without = forecasts(panel.only(TICKERS[1:][::-1]), config)
    pd.testing.assert_frame_equal(everyone.loc[TICKERS[1:][::-1]], without, check_exact=True)

    values = panel.values.copy()
    values[2] *= 1 + 0.5 * np.sin(np.arange(values.shape[1]))[:, None]
    edited = forecasts(dataclasses.replace(panel, values=values), config)
    others = [name for name in TICKERS if name != TICKERS[2]]
    pd.testing.assert_frame_equal(everyone.loc[others], edited.loc[others], check_exact=True)
    changed = [TICKERS[2]]
    assert not everyone.loc[changed].equals(edited.loc[changed])

    longer = fc.load_panel("simulated", ["GE"], start="2020-01-01").to_frame()
    wide = Panel.from_frame(pd.concat([panel.to_frame(), longer]))
    pd.testing.assert_frame_equal(everyone, forecasts(wide, config).loc[TICKERS], check_exact=True)


def test_a_series_without_networks_changes_no_other():
    """Numbers have the same precision in every company."""
    random = np.random.default_rng(0)
    long, short = (
        pd.DataFrame({"unique_id": name, "ds": np.arange(rows), "y": random.normal(9, 1, rows)})
        for name, rows in (("long", 120), ("short", 20))
    )
    config = fc.Config(horizon=1, start="independent", model="mlp", lookback=8, epochs=1)
    alone, beside = (fc.fit(some, config) for some in (long, pd.concat([long, short])))
    assert list(beside.report["forecast_by"]) == ["own networks", "combination"]
    np.testing.assert_array_equal(alone.normal_scores, beside.normal_scores[:1])
    made = fc.predict(beside, pd.concat([long, short])).query("unique_id == 'long'")
    pd.testing.assert_frame_equal(fc.predict(alone, long), made, check_exact=True, check_like=True)


def test_training_targets_and_validation_do_not_overlap(panel, config):
    """What lies in the validation span changes when training stops, never a training loss."""
    values = panel.values.copy()
    values[:, -100:] = values[:, -101:-100]  # frozen over all of the 100 validation rows
    one = dataclasses.replace(config, epochs=1)
    before, after = (
        fc.fit(p, one, seed=1) for p in (panel, dataclasses.replace(panel, values=values))
    )
    best = before.report["best_epoch"].eq(1) & after.report["best_epoch"].eq(1)
    assert best.any()
    rows = np.flatnonzero(best)
    kernels = (m.params["layers"][0]["kernel"][rows] for m in (before, after))
    np.testing.assert_array_equal(*kernels)
    assert (before.report["validation_loss"] != after.report["validation_loss"]).all()


@pytest.mark.parametrize("premium", [None, 0.05])
def test_untrained_means_the_premium_or_unchanged_without_one(panel, config, premium):
    still = dataclasses.replace(config, learning_rate=1e-12, premium=premium)
    model = fc.fit(panel, still, seed=1)
    frame, now = fc.predict(model, panel), np.repeat(panel.channel("close")[:, -1], 3)
    moved = np.log(frame["LSTM"] / now)
    if premium is None:
        np.testing.assert_allclose(moved, 0.0, atol=1e-5)
        assert np.allclose(frame["probability_of_rise"], 0.5, atol=1e-3)
        return
    # Half the variance below the growth of the mean.
    below = np.outer(model.growth, np.arange(1, 4)).ravel() - moved
    width = np.log(frame["LSTM-hi-95"] / frame["LSTM-lo-95"]) / 4
    assert (below > width**2 / 6).all() and (below < width**2 * 1.5).all()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "gru"},
        {"model": "mlp"},
        slow({"model": "transformer"}),
        slow({"training": "windowed", "layers": 2}),
    ],
)
def test_every_kind_of_model_learns(panel, config, change, tmp_path):
    """A series whose next step is plain to see: each kind must beat 'unchanged' by far."""
    time = np.arange(400)
    wave = pd.DataFrame({"unique_id": "wave", "ds": time, "y": np.sin(time * 2 * np.pi / 9) + 5})
    config = dataclasses.replace(
        config, epochs=40, patience=40, hidden=16, transform="difference", **change
    )
    model = fc.fit(Panel.from_frame(wave), config, seed=0)
    assert model.report["mae_relative_to_naive"].iloc[0] < 0.5
    assert model.report["epochs"].iloc[0] == 40  # as it was told, not fewer
    forecast = fc.predict(model, Panel.from_frame(wave))
    assert list(forecast)[2] == config.column
    again = fc.load(fc.save(model, tmp_path / "run"))
    pd.testing.assert_frame_equal(
        fc.predict(again, Panel.from_frame(wave)), forecast, check_exact=True
    )


def test_series_that_cannot_be_used_are_named(panel, config):
    table = panel.to_frame()
    flat = table[table.unique_id == "KO"].assign(unique_id="FLAT", adj_close=7.0)
    short = table[table.unique_id == "KO"].assign(unique_id="SHORT").tail(90)
    negative = table[table.unique_id == "KO"].assign(unique_id="NEG")
    negative.iloc[5, negative.columns.get_loc("adj_close")] = -1
    mixed = Panel.from_frame(pd.concat([table[table.unique_id == "KO"], flat, short, negative]))
    model = fc.fit(mixed, config, seed=1)
    assert model.ids == ("KO",)
    assert str(model.skipped["FLAT"]) == "adj_close never changes"
    assert str(model.skipped["SHORT"]) == (
        "90 rows; 133 needed (lookback 30 + horizon 3 + validation 100)"
    )
    assert "a price must be above zero" in str(model.skipped["NEG"])
    with refuses(DataError):
        fc.fit(mixed.only(["FLAT", "SHORT", "NEG"]), config, seed=1)


def test_a_bad_row_to_come_does_not_remove_forecasts_made_before_it(panel, config):
    values = panel.values.copy()
    values[1, -2, panel.channels.index("adj_close")] = -1
    spoilt = dataclasses.replace(panel, values=values)
    before = fc.cross_validation(panel, config, n_windows=59, seed=1)
    after = fc.cross_validation(spoilt, config, n_windows=59, seed=1)
    early = before["cutoff"] < panel.times[-8]
    same = after["cutoff"] < panel.times[-8]
    pd.testing.assert_frame_equal(
        before[early].reset_index(drop=True), after[same].reset_index(drop=True), check_exact=True
    )


@pytest.mark.slow
def test_errors_are_set_against_the_last_value_and_the_season_before():
    """By written-out loops over the validation span of each series."""
    random = np.random.default_rng(0)
    ds = np.arange(160)
    wave = 10 * np.sin(2 * np.pi * ds / 12)
    values = {"walk": 50 + random.normal(size=160).cumsum(), "wave": wave + random.normal(size=160)}
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": ds, "y": y}) for name, y in values.items()
    )
    panel = fc.load_panel(frame)
    config = fc.Config(horizon=13, epochs=1, members=1, hidden=2, start="independent")
    model = fc.fit(panel, config)
    seasons = model.transform.basic_seasons(model.ids)
    assert list(seasons) == [0, 12]
    report = model.report
    assert np.isnan(report["mae_relative_to_seasonal_naive"]["walk"])
    y = panel.channel("y")[1]
    naive, seasonal = [], []
    held_back = 160 // 4
    for origin in range(160 - 1 - held_back, 160 - 1):
        for h in range(1, 14):
            if origin + h < 160:
                naive.append(abs(y[origin + h] - y[origin]))
                seasonal.append(abs(y[origin + h] - y[origin + h - 12 * (-(-h // 12))]))
    for column, errors in (("naive", naive), ("seasonal_naive", seasonal)):
        expected = report["mae"]["wave"] / np.mean(errors)
        assert report[f"mae_relative_to_{column}"]["wave"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_a_series_that_no_worker_could_train_is_skipped_by_name(panel, config, model):
    away = fc.fit(panel, config, seed=1, executor=Elsewhere(1, lost=[3]))
    assert away.skipped == {TICKERS[3]: Skipped(Kind.NOT_TRAINED, detail="lost three times")}
    kept = model.only([name for name in TICKERS if name != TICKERS[3]])
    assert away.ids == kept.ids and away.report.equals(kept.report)
    assert same(away.networks.params, kept.networks.params)


@pytest.fixture
def half(config, units):
    """Return the settings of the other tests with bfloat16, on any processor."""
    return dataclasses.replace(
        config, precision="bfloat16", start="independent", members=1, hidden=5
    )


def test_a_model_of_bfloat16_learns_keeps_its_precision_and_its_bits(panel, half, units, tmp_path):
    model = fc.fit(panel, half, seed=1)
    assert model.provenance["products"] == f"bfloat16 ({units})"
    assert not (model.report["status"] == "diverged").any()
    fc.save(model, tmp_path / "model")
    loaded = fc.load(tmp_path / "model")
    assert loaded.config.precision == "bfloat16"
    forecast = fc.predict(loaded, panel)
    assert forecast.equals(fc.predict(model, panel))
    alone = fc.fit(panel.only(panel.ids[2:3]), half, seed=1)
    mine = forecast[forecast["unique_id"] == panel.ids[2]].reset_index(drop=True)
    assert mine.equals(fc.predict(alone, panel.only(panel.ids[2:3])).reset_index(drop=True))


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
