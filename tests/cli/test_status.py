"""``status`` shows all that can be shown, whatever is in the home."""

import shutil

import pytest

import forecaster as fc
from tests.conftest import error, run


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
