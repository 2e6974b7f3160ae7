"""Tests of ``--future`` and ``--static``, from a fit to a forecast."""

import shutil

import numpy as np
import pandas as pd
import pytest

from tests.conftest import error, run

DAYS = pd.date_range("2024-01-01", periods=163)


@pytest.fixture
def files(tmp_path):
    """Write sales of three shops over 160 days, promotions for three more days, and shop facts."""
    random = np.random.default_rng(0)
    plans = pd.DataFrame({"date": DAYS, "promotion": (random.random(163) < 0.3).astype(int)})
    sales = [
        pd.DataFrame(
            {
                "unique_id": f"SHOP-{k}",
                "ds": DAYS[:160],
                "y": 20 + 10 * plans["promotion"][:160] + random.normal(size=160).round(3),
            }
        )
        for k in "ABC"
    ]
    pd.concat(sales).to_csv(tmp_path / "sales.csv", index=False)
    plans.to_csv(tmp_path / "plans.csv", index=False)
    kinds = pd.DataFrame({"ticker": ["shop.a", "SHOP-B", "SHOP-C"], "kind": ["town"] * 3})
    kinds.to_csv(tmp_path / "kinds.csv", index=False)
    return tmp_path


def test_they_are_there_from_the_fit_to_the_forecast(files, settings):
    home = ("--home", files / "home")
    more = ("--future", files / "plans.csv", "--static", files / "kinds.csv")
    fit = ("fit", "--source", f"files:{files / 'sales.csv'}", "--config", settings, *home)
    assert "no such file" in error(*fit, "--future", files / "none.csv", code=2)
    assert "static covariates tell series apart" in error(*fit, *more, code=2)
    assert not list((files / "home").glob("unfinished/*"))
    done = run(*fit, "--start-from", "pooled", *more)
    assert done.exit_code == 0, done.stderr
    whole = run("predict", "--all", "--format", "csv", *home)
    assert whole.exit_code == 0 and whole.stdout.count("SHOP-") == 9, whole.stderr
    plans = pd.read_csv(files / "plans.csv")
    plans.iloc[:161].to_csv(files / "plans.csv", index=False)
    said = error("predict", "--all", *home, code=1)
    assert "'promotion' of SHOP-A is not known for 2024-06-10; a forecast needs it up to" in said
    other = files / "other.csv"
    plans.assign(promotion=1 - plans["promotion"]).to_csv(other, index=False)
    again = run("predict", "--all", "--format", "csv", "--future", other, *home)
    assert again.exit_code == 0 and again.stdout != whole.stdout
    table = ("--output", f"sql:sqlite:///{files}/desk.db#forecasts")
    for assumed in (("--future", other), ("--static", files / "kinds.csv")):
        said = error("predict", "--all", *assumed, *table, *home, code=2)
        assert f"{assumed[0]} makes forecasts on a condition" in said
        assert "write to a file, as with a run outside the home" in said
        assert not (files / "desk.db").exists()


def test_a_model_without_any_refuses_them(home, tmp_path):
    (tmp_path / "plans.csv").write_text("ds,promotion\n2024-01-01,1\n")
    said = error("predict", "AAPL", "--future", tmp_path / "plans.csv", "--home", home, code=2)
    assert "fitted without future covariates" in said


def test_they_are_read_as_the_options_say_and_later_as_they_were_then(files, settings):
    """Files with days first and decimal commas; `predict` then needs no option."""
    home = ("--home", files / "home")
    for name in ("sales", "plans"):
        table = pd.read_csv(files / f"{name}.csv")
        table = table.rename(columns={"date": "ds"}).assign(
            ds=lambda t: pd.to_datetime(t["ds"]).dt.strftime("%d/%m/%Y")
        )
        table.to_csv(files / f"{name}.csv", index=False, sep=";", decimal=",")
    fit = (
        "fit", "--source", f"files:{files / 'sales.csv'}", "--config", settings, *home,
        "--future", files / "plans.csv", "--date-format", "%d/%m/%Y", "--decimal", ",",
    )  # fmt: skip
    assert (done := run(*fit)).exit_code == 0, done.stderr
    predict = ("predict", "--all", "--format", "csv", *home)
    whole = run(*predict)
    assert whole.stdout.count("SHOP-") == 9, whole.stderr
    assert ",2024-06-09" in whole.stdout
    plans = pd.read_csv(files / "plans.csv", sep=";")
    same = files / "american.csv"
    american = pd.to_datetime(plans["ds"], format="%d/%m/%Y").dt.strftime("%m/%d/%Y")
    plans.assign(ds=american).to_csv(same, index=False)
    again = run(*predict, "--future", same, "--date-format", "%m/%d/%Y")
    assert again.stdout == whole.stdout, again.stderr
    said = error(*predict, "--future", same, code=1)
    assert "american.csv, line 14, column 'ds': '01/13/2024' is not a date" in said
    said = error(*predict, "--date-format", "%m/%d/%Y", code=2)
    assert "--date-format says how to read files of covariates; add --future" in said
    said = error(*predict, "--future", same, "--columns", "wide", code=2)
    assert "covariates only take id=NAME and time=NAME" in said
    renamed = pd.read_csv(same).rename(columns={"ds": "target_day"})
    renamed.to_csv(files / "renamed.csv", index=False)
    reading = ("--date-format", "%m/%d/%Y", "--columns", "time=target_day")
    third = run(*predict, "--future", files / "renamed.csv", *reading)
    assert third.stdout == whole.stdout, third.stderr


def test_only_a_run_of_the_home_opens_the_files_that_it_names(files, settings):
    """A model from elsewhere could name any file of this machine."""
    home = ("--home", files / "home")
    fit = ("fit", "--source", f"files:{files / 'sales.csv'}", "--config", settings, *home)
    assert run(*fit, "--future", files / "plans.csv", "--run", "mine").exit_code == 0
    (mine,) = (files / "home" / "models").iterdir()
    theirs = shutil.copytree(mine, files / "theirs")
    linked = mine.with_name("linked")
    linked.symlink_to(theirs, target_is_directory=True)
    assert run("predict", "--all", "--run", "mine", *home).exit_code == 0
    said = error("predict", "--all", "--run", theirs, *home, code=2)
    assert "plans.csv: not opened: the run" in said and "predict --future FILE" in said
    assert error("predict", "--all", "--run", "linked", *home, code=2)
    named = ("--future", files / "plans.csv")
    assert run("predict", "--all", "--run", theirs, *named, *home).exit_code == 0
