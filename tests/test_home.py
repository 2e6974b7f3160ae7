"""The names under the home folder are those of older versions."""

import time
from pathlib import Path

from forecaster.errors import ModelError, UsageError
from forecaster.files import Home, file_name
from tests.conftest import run
from tests.messages import refuses


def test_the_names_on_disk(tmp_path):
    home = Home(tmp_path)
    assert str(home) == str(tmp_path)
    assert home.prices == tmp_path / "prices"
    assert home.store("yahoo") == tmp_path / "prices" / file_name("yahoo")
    assert home.models == tmp_path / "models"
    assert home.cache == tmp_path / "cache"
    assert home.programs == tmp_path / "cache" / "programs"
    assert home.evaluations == tmp_path / "evaluations"
    assert home.unfinished == tmp_path / "unfinished"
    assert list(tmp_path.iterdir()) == []  # naming a path creates nothing


def test_users_who_share_a_home_can_all_write_in_its_cache(tmp_path, monkeypatch):
    """Only programs are one user's."""
    made = []
    monkeypatch.setattr("forecaster.swarm.keep_compiled", made.append)
    home = Home(tmp_path)
    assert run("predict", "AAA", "--home", home).exit_code == 1
    assert made == [home.programs]
    assert home.cache in home.programs.parents
    assert home.programs != home.cache


def test_names_are_as_older_versions_wrote_them():
    assert file_name("AAPL") == "AAPL"
    assert file_name("yahoo") == "yahoo~a7a4ded2"
    assert file_name("CON") == "%43ON"
    assert file_name("A/B") == "A%2FB"


def fill(folder: Path, file: str) -> Path:
    folder.mkdir(parents=True)
    (folder / file).touch()
    return folder


def test_only_complete_runs_count_and_the_latest_is_last(tmp_path):
    home = Home(tmp_path)
    with refuses(ModelError):
        home.latest_run()
    first = fill(home.new_run("lstm"), "model.json")
    time.sleep(0.002)
    second = fill(home.new_run("gru"), "model.json")
    fill(home.models / ".tmp-99", "model.json")
    (home.models / "99999999-empty").mkdir()
    assert home.runs() == [first, second] and home.latest_run() == second
    assert first.name.endswith("-lstm")


def test_only_complete_evaluations_count(tmp_path):
    home = Home(tmp_path)
    with refuses(UsageError):
        home.latest_evaluation()
    fill(home.evaluations / "2020-01-01T00-00-00", "summary.json")
    later = fill(home.new_evaluation(), "summary.json")
    (home.evaluations / "9999-empty").mkdir()
    assert home.latest_evaluation() == later


def test_stores_are_those_with_an_index(tmp_path):
    home = Home(tmp_path)
    assert home.stores() == []
    stores = [fill(home.store("A"), "index.sqlite"), fill(home.store("B"), "manifest.json")]
    (home.prices / "C").mkdir()
    assert home.stores() == stores
