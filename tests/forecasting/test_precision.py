"""Networks with products in bfloat16 are fitted, saved and forecast like any other."""

import dataclasses

import pytest

import forecaster as fc


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
