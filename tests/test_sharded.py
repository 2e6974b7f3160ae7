"""A fit in shards: the bits of one in one piece, whatever interrupts it, and one shard a ticker."""

import contextlib
import shutil
import sys
from unittest.mock import Mock

import jax
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from forecaster.files import Home, is_held
from forecaster.forecasting.fitting import common as sampling
from forecaster.ingest import Store
from forecaster.storage import Run
from forecaster.storage import run as opening
from forecaster.swarm.execution.schedule import train_shard
from tests.conftest import error, prices, run
from tests.messages import refuses
from tests.swarm.test_shards import Elsewhere

pytestmark = pytest.mark.usefixtures("quick_collections")

NAMES = ["AAA", "BBB", "CCC", "DDD", "EEE", "FFF", "GGG"]
SETTINGS = """
hidden = 2
lookback = 20
burn_in = 5
horizon = 2
validation = 60
epochs = 3
members = 2
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Series of unequal length, of which one is too short; settings; and a fit in one piece."""
    folder = tmp_path_factory.mktemp("sharded")
    rows = dict(zip(NAMES, [300, 280, 320, 300, 40, 300, 290], strict=True))
    parts = [prices(name, rows[name]) for name in NAMES]
    pd.concat(parts).to_csv(folder / "p.csv", index=False)
    (folder / "c.toml").write_text(SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "MOST_SERIES", 3)
        done = run(*fitting(folder), "--home", folder / "whole")
    assert done.exit_code == 3 and "Skipped 1" in done.stderr
    assert not (Home(folder / "whole").latest_run() / "shards").exists()
    (folder / "said").write_text(done.stderr)
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(sampling, "MOST_SERIES", 3)
    monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", 2)


def fitting(folder):
    return ("fit", "--source", f"files:{folder / 'p.csv'}", "--config", folder / "c.toml")


@pytest.fixture(scope="module")
def sharded(data):
    """A home with a run in shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "MOST_SERIES", 3)
        patch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", 2)
        done = run(*fitting(data), "--run", "mine", "--home", data / "home")
    assert done.exit_code == 3 and "Shards" in done.stdout and "EEE: 40 rows" in done.stderr
    assert done.stderr == (data / "said").read_text()
    return Home(data / "home")


def same_model(one: fc.Model, other: fc.Model) -> None:
    assert one.ids == other.ids and dict(one.skipped) == dict(other.skipped)
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    jax.tree.map(np.testing.assert_array_equal, one.networks.start, other.networks.start)
    np.testing.assert_array_equal(one.normal_scores, other.normal_scores)
    jax.tree.map(np.testing.assert_array_equal, one.widths, other.widths)
    np.testing.assert_array_equal(one.fitted_until, other.fitted_until)
    pd.testing.assert_frame_equal(one.report, other.report, check_exact=True)
    assert one.transform.to_dict() == other.transform.to_dict()
    assert one.frequency == other.frequency and one.channels == other.channels
    kept = ("first", "last", "data_sha256", "seed", "source", "mask", "masked")
    assert {k: one.provenance[k] for k in kept} == {k: other.provenance[k] for k in kept}


def test_a_fit_in_shards_has_the_bits_of_one_in_one_piece(data, sharded):
    whole = fc.load(Home(data / "whole").latest_run())
    folder = sharded.latest_run()
    assert sorted(path.name for path in (folder / "shards").iterdir()) == ["0000", "0001", "0002"]
    same_model(whole, fc.load(folder))
    until = dict(zip(whole.ids, whole.fitted_until, strict=True))
    for run_of in (folder, Home(data / "whole").latest_run()):  # also without reading any network
        assert Run.read(run_of).fitted_until == until
    shard = fc.load(folder / "shards" / "0001")  # is a model by itself
    same = whole.only(shard.ids)
    jax.tree.map(np.testing.assert_array_equal, same.params, shard.params)
    jax.tree.map(np.testing.assert_array_equal, whole.widths, shard.widths)
    some = fc.load(folder, ids=["GGG", "AAA"])
    assert some.ids == ("GGG", "AAA")
    for ids in (["nobody"], ["nobody", "AAA"]):
        with refuses(UsageError):
            fc.load(folder, ids=ids)


def test_forecasts_are_those_of_one_piece_and_one_ticker_opens_one_shard(
    data, sharded, monkeypatch
):
    commands = (
        ("predict", "--all", "--format", "csv"),
        ("predict", "GGG", "aaa", "--format", "csv"),
        ("predict", "--all", "--paths", 3, "--format", "csv"),
    )
    for command in commands:
        assert (
            sorted(run(*command, "--home", sharded).stdout.splitlines())
            == sorted(run(*command, "--home", data / "whole").stdout.splitlines())
        )  # fmt: skip
    monkeypatch.setattr(opening, "load_whole", read := Mock(wraps=opening.load_whole))
    monkeypatch.setattr(opening, "read_rest", facts := Mock(wraps=opening.read_rest))
    assert run("predict", "FFF", "--home", sharded).exit_code == 0
    newcomer = run("predict", "EEE", "--format", "csv", "--home", sharded)
    # For a newcomer any will do: they have the common start.
    assert [call.args[0].name for call in read.call_args_list] == ["0002", "0000"]
    assert all(call.args[0].parent.name == "models" for call in facts.call_args_list)
    assert (
        newcomer.stdout == run("predict", "EEE", "--format", "csv", "--home", data / "whole").stdout
    )
    assert "not among the 6 series" in error("predict", "XYZ", "--home", sharded, code=1)


def test_a_shard_that_cannot_forecast_holds_up_no_other(sharded, monkeypatch):
    from forecaster.forecasting.predicting import predicting

    match_panel = predicting.match_panel

    def refused(model, panel, **more):
        if "CCC" in panel.ids:
            raise ModelError("no forecast can be made: CCC: its rows are a week apart")
        return match_panel(model, panel, **more)

    monkeypatch.setattr(predicting, "match_panel", refused)
    done = run("predict", "--all", "--format", "csv", "--home", sharded)
    assert done.exit_code == 3 and "CCC: no forecast can be made" in done.stderr
    forecast = {line.split(",")[0] for line in done.stdout.splitlines()[1:]}
    assert forecast == {"AAA", "BBB", "EEE", "FFF", "GGG"}  # EEE by the common network
    assert "a week apart" in error("predict", "CCC", "DDD", "--home", sharded, code=1)


def test_an_interrupted_fit_goes_on_at_the_first_shard_that_is_not_finished(
    data, tmp_path, monkeypatch
):
    from forecaster.pipeline import fit_run as training

    fit_part, trained = training.fit_part, []

    def stopped(panel, *rest, **options):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(panel.ids)
        return fit_part(panel, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_part", stopped)
        message = error(*fitting(data), "--home", tmp_path, code=130)
    assert "--resume" in message and len(trained) == 2
    told = run("status", "--home", tmp_path).stdout
    # Of the seven series one cannot be trained, which is not known before they are read.
    assert "2 of 4 shards" in " ".join(told.split()) and "none yet" not in told
    monkeypatch.setattr(training, "fit_part", more := Mock(wraps=fit_part))
    assert run("fit", "--resume", "--home", tmp_path).exit_code == 3
    assert [call.args[0].ids for call in more.call_args_list] == [("FFF", "GGG")]
    home = Home(tmp_path)
    same_model(fc.load(Home(data / "whole").latest_run()), fc.load(home.latest_run()))
    assert not home.unfinished.exists()


@contextlib.contextmanager
def with_executor(executor):
    """Commands with --ray train by this executor."""
    with pytest.MonkeyPatch.context() as patch:
        cluster = contextlib.nullcontext(executor)
        patch.setattr(sys.modules["forecaster.cli.options"], "cluster", lambda address: cluster)
        yield


class Losing(Elsewhere):
    """Loses all workers of some of the fits that it is given, by their order."""

    def __init__(self, fits):
        super().__init__(2)
        self.fits, self.begun = fits, 0

    def run(self, function, common, parts, *, per_core=False):
        if function is train_shard:
            self.begun += 1
            self.lost = set(range(99)) if self.begun in self.fits else set()
        return super().run(function, common, parts, per_core=per_core)


@pytest.mark.slow
def test_what_is_lost_with_its_workers_is_named_and_tried_again(data, tmp_path):
    home, whole = Home(tmp_path), fc.load(Home(data / "whole").latest_run())
    with with_executor(Losing([2])):
        done = run(*fitting(data), "--run", "mine", "--home", tmp_path)
    assert done.exit_code == 3, done.output
    assert "CCC, DDD: lost three times" in done.stderr
    again = home.unfinished_fits()[0].name
    assert f"`forecaster fit --resume {again}` tries the others again" in done.stderr
    assert fc.load(home.latest_run()).ids == ("AAA", "BBB", "FFF", "GGG")
    assert run("predict", "AAA", "--home", tmp_path).exit_code == 0
    with with_executor(more := Elsewhere(2)):
        done = run("fit", "--resume", "--home", tmp_path)
    assert done.exit_code == 3 and "--resume" not in done.stderr, done.output
    assert len(more.trained) == 2  # the networks of CCC and DDD, two each
    same_model(whole, fc.load(home.latest_run()))
    assert not home.unfinished.exists() and len(home.runs()) == 2


@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_trained_but_not_saved_is_not_trained_again(shards, data, tmp_path, monkeypatch):
    from forecaster.pipeline import fit_run as pipeline
    from forecaster.pipeline import fit_run as training

    if shards == 1:
        monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", 99)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "save_shards", Mock(side_effect=KeyboardInterrupt))
        assert "--resume" in error(*fitting(data), "--home", tmp_path, code=130)
    monkeypatch.setattr(training, "fit_part", None)
    monkeypatch.setattr(shutil, "copyfile", None)  # arrays are linked: the disk holds them once
    assert run("fit", "--resume", "--home", tmp_path).exit_code == 3
    folder = Home(tmp_path).latest_run()
    assert len(list(folder.glob("shards/*"))) == (0 if shards == 1 else shards)
    whole = Home(data / "whole").latest_run()
    same_model(fc.load(whole), fc.load(folder))
    if shards == 1:
        names = [sorted(path.name for path in each.iterdir()) for each in (whole, folder)]
        assert names[0] == names[1] == ["model.json", "model.safetensors"]


def test_what_is_damaged_is_named(sharded, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(sharded.latest_run(), folder)
    arrays = folder / "shards" / "0001" / "model.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1])
    opened = Run.read(folder)
    assert opened.model(["AAA"]).ids == ("AAA",)  # in another shard
    with refuses(ModelError):
        opened.model(["CCC"])


def test_what_needs_all_series_in_memory_says_so_before_it_takes_them(data, tmp_path):
    (tmp_path / "s.csv").write_text("unique_id,size\n" + "".join(f"{n},1\n" for n in NAMES))
    more = (*fitting(data)[1:], "--static", tmp_path / "s.csv", "--home", tmp_path / "h")
    message = error("fit", *more, "--memory", "4GB", code=2)
    assert "with --future or --static needs all series in memory" in message
    assert not list((tmp_path / "h").glob("unfinished/*/"))


def test_the_store_is_locked_while_shards_of_it_train_and_the_help_says_so(
    data, tmp_path, monkeypatch
):
    said = " ".join(run("fit", "--help").stdout.split())
    assert "at the same time, but only one in shards (--memory) per source" in said
    held = []

    def watched(self):
        held.append([is_held(store.folder) for store in Store.all_of(Home(tmp_path))])
        raise KeyboardInterrupt

    monkeypatch.setattr("forecaster.swarm.execution.schedule.Schedule.advance", watched)
    error(*fitting(data), "--home", tmp_path, code=130)
    monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", 99)
    error(*fitting(data), "--home", tmp_path, code=130)
    assert held == [[True], [False]]  # one in one piece has read them


def test_an_update_of_a_run_in_shards_is_that_of_one_in_one_piece(data, sharded, tmp_path):
    table = data / "p.csv"
    before = table.read_bytes()
    rows = pd.read_csv(table)["ticker"].value_counts()
    pd.concat([prices(name, rows[name] + 20) for name in NAMES]).to_csv(table, index=False)
    updated: list[fc.Model] = []
    try:
        for number, folder in enumerate((data / "whole", data / "home")):
            home = shutil.copytree(folder, tmp_path / str(number))
            done = run("fit", "--update", "--home", home)
            assert done.exit_code == 1 and "nothing to update" in done.stderr
            assert run("ingest", "--source", f"files:{table}", "--home", home).exit_code == 0
            done = run("fit", "--update", "--tickers", "AAA,GGG", "--home", home)
            assert done.exit_code == 0, done.output
            updated.append(fc.load(Home(home).latest_run()))
    finally:
        table.write_bytes(before)
    one, other = updated
    old = fc.load(sharded.latest_run())
    rows_of = one.networks.rows_of(["AAA", "GGG"])
    rest = np.setdiff1d(np.arange(len(one.ids)), rows_of)
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    np.testing.assert_array_equal(one.normal_scores, other.normal_scores)
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a[rest], b[rest]), other.params, old.params
    )
    assert (one.report["rows"] - old.report["rows"])[["AAA", "GGG"]].tolist() == [20, 20]
    assert other.fitted_until[rest].tolist() == old.fitted_until[rest].tolist()
