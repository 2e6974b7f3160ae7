"""Models on disk: the same forecasts after loading, and a clear word about every kind of damage."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import Kind, ModelError, Skipped, WriteError
from forecaster.files import Home


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


def test_reasons_are_stored_as_fields(model, tmp_path):
    skipped = {
        "SHORT": Skipped(Kind.TOO_SHORT, 30, 34, detail="2 x horizon 5 + validation 14 + 10"),
        "FLAT": Skipped(Kind.CONSTANT, column="close"),
    }
    run = fc.save(dataclasses.replace(model, skipped=skipped), tmp_path / "run")
    assert fc.load(run).skipped == skipped
    stored = json.loads((run / "model.json").read_text())["skipped"]
    assert stored["FLAT"] == {
        "kind": "constant", "column": "close", "reason": "close never changes"
    }  # fmt: skip
    assert (stored["SHORT"]["rows"], stored["SHORT"]["needed"]) == (30, 34)


def test_series_that_count_in_whole_numbers_survive(config, tmp_path):
    y = np.cumsum(np.random.default_rng(0).normal(size=300)) + 50
    panel = fc.load_panel(pd.DataFrame({"unique_id": "s", "ds": np.arange(300), "y": y}))
    model = fc.fit(panel, config, seed=0)
    again = fc.load(fc.save(model, tmp_path / "run"))
    frame = fc.predict(again, panel)
    assert frame["ds"].tolist() == [300, 301, 302]
    pd.testing.assert_frame_equal(frame, fc.predict(model, panel), check_exact=True)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: truncate(run / "model.safetensors"), "damaged; its content is not what was"),
        (lambda run: truncate(run / "model.json"), "cannot be read .*forecaster fit"),
        (lambda run: (run / "model.safetensors").unlink(), "cannot be read: No such file"),
    ],
)
def test_damage_is_one_clear_error(saved, damage, message):
    damage(saved)
    with pytest.raises(ModelError, match=message):
        fc.load(saved)


def test_a_missing_model_says_what_to_do(tmp_path):
    with pytest.raises(ModelError, match="run `forecaster fit` first"):
        fc.load(tmp_path / "nothing")
    with pytest.raises(ModelError, match="run `forecaster fit` first"):
        Home(tmp_path).latest_run()


def test_nothing_is_overwritten_and_nothing_half_written_stays(model, saved, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="exists already"):
        fc.save(model, saved)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(
        WriteError, match=r"cannot be written: No space left.*choose another folder"
    ):
        fc.save(model, tmp_path / "models" / "second")
    assert list((tmp_path / "models").iterdir()) == []


def test_the_latest_run_is_the_newest_complete_one(model, tmp_path):
    first = fc.save(model, Home(tmp_path).new_run("lstm"))
    second = fc.save(model, Home(tmp_path).new_run("gru"))
    (tmp_path / "models" / ".tmp-interrupted").mkdir()
    (tmp_path / "models" / "99999999-empty").mkdir()
    assert Home(tmp_path).runs() == [first, second]
    assert Home(tmp_path).latest_run() == second
