"""An evaluation in shards: the results of one in one piece, whatever interrupts it."""

import contextlib
import json
import sys
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from forecaster.files import Home
from forecaster.forecasting.fitting import pooled as sampling
from forecaster.pipeline import measuring
from forecaster.pipeline import train_run as training
from tests.conftest import error, prices, run
from tests.swarm.test_shards import Elsewhere
from tests.test_sharded import NAMES, SETTINGS

pytestmark = pytest.mark.usefixtures("quick_collections")

OPTIONS = ("--windows", 24, "--step", 2, "--baselines", "naive,drift")
TABLES = ("forecasts", "scores", "tests", "daily")


def small(patch, shard=2):
    """Samples of three series, shards of two, and batches of two."""
    patch.setattr(sampling, "MOST_SERIES", 3)
    patch.setattr("forecaster.evaluation.origins.rolling_origin.AT_ONCE", 2)
    patch.setattr(measuring, "AT_ONCE", 2)
    if shard:
        patch.setattr("forecaster.pipeline.budget.MOST_PER_SHARD", shard)


@pytest.fixture(autouse=True)
def in_shards(monkeypatch):
    small(monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Series of unequal length, of which one is too short and one ends early, and settings."""
    folder = tmp_path_factory.mktemp("evaluated")
    rows = dict(zip(NAMES, [300, 280, 320, 300, 40, 300, 290], strict=True))
    parts = [prices(name, rows[name]) for name in NAMES]
    parts[3] = prices("DDD", 260)
    pd.concat(parts).to_csv(folder / "p.csv", index=False)
    (folder / "c.toml").write_text(SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, shard=0)
        done = run(*evaluating(folder), "--home", folder / "whole", "--output", folder / "one")
    assert done.exit_code == 3, done.output
    (folder / "said").write_text(done.stderr)
    return folder


def evaluating(folder, *more):
    source = f"files:{folder / 'p.csv'}"
    return ("evaluate", "--source", source, "--config", folder / "c.toml", *OPTIONS, *more)


def same(one, other):
    """Forecasts are the same bits, scores the same but for rounding, as is what summaries say."""
    for name in TABLES:
        first, second = (pd.read_parquet(folder / f"{name}.parquet") for folder in (one, other))
        exact: dict[str, Any] = {"check_exact": True} if name == "forecasts" else {"rtol": 1e-9}
        pd.testing.assert_frame_equal(first, second, **exact)
    of_the_run = {"created", "seconds", "sha256"}
    said = [json.loads((folder / "summary.json").read_text()) for folder in (one, other)]
    assert {k: v for k, v in said[0].items() if k not in of_the_run} == {
        k: v for k, v in said[1].items() if k not in of_the_run
    }


@pytest.mark.slow
def test_an_evaluation_in_shards_has_the_bits_of_one_in_one_piece(data, tmp_path):
    done = run(*evaluating(data), "--home", tmp_path, "--output", tmp_path / "out")
    assert done.exit_code == 3, done.output
    assert "Skipped 2" in done.stderr and "report.html" in done.stdout
    assert done.stderr == (data / "said").read_text()
    assert done.stderr.count("end early, and are scored") == 1  # not by shard
    same(data / "one", tmp_path / "out")
    whole = run("report", data / "one").stdout.splitlines()
    assert done.stdout.splitlines()[:-1] == whole[:-1]  # the verdict of tables read in short
    assert (tmp_path / "out" / "figures").is_dir() and not Home(tmp_path).unfinished.exists()


@pytest.mark.slow
def test_what_is_trained_is_not_trained_again(data, tmp_path, monkeypatch):
    fit_part, measure_part = training.fit_part, measuring.measure_part
    trained, measured = [], []

    def stop_training(panel, *rest, **options):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(panel.ids)
        return fit_part(panel, *rest, **options)

    def stop_measuring(folder, *rest, **options):
        if measured:
            raise KeyboardInterrupt
        measured.append(folder.name)
        return measure_part(folder, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_part", stop_training)
        message = error(
            *evaluating(data), "--home", tmp_path, "--output", tmp_path / "out", code=130
        )
    assert "`forecaster evaluate --resume`" in message and not (tmp_path / "out").exists()
    assert "leave out --windows" in error(
        "evaluate", "--resume", "--windows", 3, "--home", tmp_path, code=2
    )
    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_part", more := Mock(wraps=fit_part))
        patch.setattr(measuring, "measure_part", stop_measuring)
        error("evaluate", "--resume", "--home", tmp_path, code=130)
    assert trained == [("AAA", "BBB"), ("CCC", "DDD")] and len(measured) == 1
    assert [call.args[0].ids for call in more.call_args_list] == [("FFF", "GGG")]
    monkeypatch.setattr(training, "fit_part", None)
    monkeypatch.setattr(measuring, "measure_part", rest := Mock(wraps=measure_part))
    done = run("evaluate", "--resume", "--home", tmp_path)
    assert done.exit_code == 3, done.output
    assert rest.call_count == 3  # forecasts and baselines are made again, networks are not
    same(data / "one", tmp_path / "out")
    assert not Home(tmp_path).unfinished.exists()


@pytest.mark.slow
def test_pages_are_left_out_where_the_tables_are_too_large_for_them(data, tmp_path, monkeypatch):
    monkeypatch.setattr("forecaster.machine.free_memory", lambda: 10**4)
    done = run(*evaluating(data), "--home", tmp_path, "--output", tmp_path / "out")
    assert done.exit_code == 3 and "No figures and no report: the tables of 5 series" in done.stderr
    assert f"Tables: {tmp_path / 'out'}" in done.stdout and "Point forecasts" in done.stdout
    same(data / "one", tmp_path / "out")


KINDS = {
    "refit": ("--refit", 8),
    "market": ("--market", "CCC"),
    "beside a market": ("--market", "CCC", "--tickers", "AAA,BBB,DDD,FFF,GGG"),
    "members": ("--tickers", "members.csv", "--groups", "groups.csv"),
    "own ends": (),
    "torch": ("--baselines", "torch,garch", "--torch-sample", 3),
    "elsewhere": ("--ray", "auto"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_asked_for_the_shards_do_not_matter(kind, data, tmp_path, monkeypatch):
    members = ["AAA,2019-01-01,", "BBB,2019-01-01,2021-01-05", "GGG,2020-12-01,"]
    (tmp_path / "members.csv").write_text("\n".join(["ticker,start,end", *members]))
    (tmp_path / "groups.csv").write_text("ticker,group\nAAA,one\nGGG,two\n")
    options = [tmp_path / o if str(o).endswith(".csv") else o for o in KINDS[kind]]
    if kind == "torch":
        pytest.importorskip("torch")
        pytest.importorskip("arch")
    if kind == "elsewhere":
        monkeypatch.setattr(
            sys.modules["forecaster.cli.fit_options"],
            "cluster",
            lambda address: contextlib.nullcontext(Elsewhere(2)),
        )
    if kind == "own ends":
        (tmp_path / "c.toml").write_text(SETTINGS)
        options = ["--config", tmp_path / "c.toml"]
        table = pd.read_csv(data / "p.csv")
        table = table.assign(ds=table.groupby("ticker").cumcount() + 1, y=table["close"])
        table = table.rename(columns={"ticker": "unique_id"})[["unique_id", "ds", "y"]]
        table.to_csv(tmp_path / "rows.csv", index=False)
        options += ["--source", f"files:{tmp_path / 'rows.csv'}"]
    monkeypatch.setattr(measuring, "measure_part", measured := Mock(wraps=measuring.measure_part))
    done = run(*evaluating(data), *options, "--home", tmp_path / "a", "--output", tmp_path / "x")
    assert done.exit_code in (0, 3), done.output
    assert measured.call_count > 1
    measured.reset_mock()
    small(monkeypatch, shard=99)
    done = run(*evaluating(data), *options, "--home", tmp_path / "a", "--output", tmp_path / "y")
    assert done.exit_code in (0, 3), done.output
    assert measured.call_count == 1
    summary = json.loads((tmp_path / "y" / "summary.json").read_text())
    assert summary["own_ends" if kind == "own ends" else "series"]
    same(tmp_path / "x", tmp_path / "y")


@pytest.mark.slow
def test_forecasts_beyond_float32_are_written_as_they_are(data, tmp_path):
    """Stored as float32 they would be infinite, and the evaluation lost; shards differ in type."""
    frame = pd.read_csv(data / "p.csv")
    columns = ["open", "high", "low", "close"]
    frame.loc[frame["ticker"] == NAMES[-1], columns] *= 1e200
    frame.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "c.toml").write_text(SETTINGS)
    done = run(*evaluating(tmp_path), "--home", tmp_path / "home", "--output", tmp_path / "ev")
    assert done.exit_code == 3, done.output
    forecasts = pd.read_parquet(tmp_path / "ev" / "forecasts.parquet")
    numbers = forecasts.drop(columns=["unique_id", "ds", "cutoff", "forecast_by"], errors="ignore")
    assert np.isfinite(numbers).all(axis=None) and (numbers.dtypes == np.float64).all()
    vast = forecasts["unique_id"] == NAMES[-1]
    assert (numbers[vast] > 1e200).all(axis=None) and (numbers[~vast] < 1e10).all(axis=None)
