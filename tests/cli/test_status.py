"""``status`` shows all that can be shown, whatever is in the home."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import forecaster as fc
from forecaster.errors import ForecasterError, Kind, Skipped
from forecaster.files import Home
from forecaster.forecasting.config import Config
from forecaster.storage import FitRequest, UnfinishedFit
from tests.conftest import error, run
from tests.storage.mutants import change_json, mutate


@pytest.fixture
def saved(model, tmp_path):
    """Make a home with a model saved by the library, which has no source."""
    return fc.save(model, tmp_path / "home" / "models" / "20260101-000000-000-lstm")


def test_a_model_of_the_library_is_shown(saved, home):
    shutil.copytree(home, saved.parents[1], dirs_exist_ok=True)
    shown = run("status", "--home", saved.parents[1])
    assert shown.exit_code == 0 and shown.stderr == ""
    assert shown.stdout.count("LSTM 4") == 2 and shown.stdout.count("unknown") == 2


@pytest.mark.parametrize("words", [("predict", "KO"), ("predict", "--all")])
def test_a_model_of_the_library_cannot_be_forecast_from_stored_prices(saved, words):
    said = error(*words, "--home", saved.parents[1], code=1)
    assert "does not say where its data are" in said and "fc.predict(fc.load(" in said
    assert "None" not in said


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutants_of_models_are_shown_or_named(count, home, tmp_path, unchecked):
    original = Home(home).latest_run()
    sound = 0
    for number in range(count):
        place = tmp_path / str(number)
        folder = shutil.copytree(original, place / "models" / "20260101-000000-000-lstm")
        what = mutate(folder, np.random.default_rng(number))
        shown = run("status", "--home", place)
        assert shown.exit_code == 0, (what, shown.output)
        assert "damaged" in shown.stdout or "LSTM" in shown.stdout, (what, shown.output)
        sound += "damaged" not in shown.stdout
        shutil.rmtree(place)
    assert 0 < sound < count / 2


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutants_of_interrupted_fits_are_shown_and_resumed_or_refused(count, tmp_path):
    skipped = {"GE": Skipped(Kind.OTHER, detail="no rows")}
    request = FitRequest(
        "simulated", ("AAPL", "KO"), skipped, "0", Config(hidden=4), 3,
        end="2026-01-01", mask=("reversed",),
    )  # fmt: skip
    home = Home(tmp_path)
    with UnfinishedFit.begin(home, request) as fit:
        path = fit.folder / "request.json"
    text, found = path.read_text(), 0
    for number in range(count):
        path.write_text(text)
        what = change_json(path, np.random.default_rng(number))
        shown = run("status", "--home", tmp_path)
        assert shown.exit_code == 0 and fit.name in shown.stdout, (what, shown.output)
        try:
            with UnfinishedFit.find(home) as again:
                found += 1
                assert json.dumps(dataclasses.asdict(again.request)), what
        except ForecasterError as refused:
            assert str(refused).strip(), what
        assert run("fit", "--resume", "--home", tmp_path).exit_code in (1, 2), what
    assert found < count / 20  # only where nothing that counts has changed
