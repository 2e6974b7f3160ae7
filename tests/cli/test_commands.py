"""The commands as a user types them: results, exit codes, and one clear error for bad input."""

import dataclasses
import re

import click
import pandas as pd
import pytest

import forecaster as fc
from forecaster.cli import main
from forecaster.files import Home
from forecaster.ingest import Store
from tests.cli.desk import Desk
from tests.conftest import error, prices, run


def test_fit_names_what_it_skipped_and_exits_with_3(tmp_path, settings):
    table = pd.concat([prices("LONG", 400), prices("SHORT", 60), prices("FLAT", 400, close=5.0)])
    desk = Desk(tmp_path)
    desk.write(table)
    result = desk("fit", "--source", f"files:{desk.path}", "--config", settings)
    assert result.exit_code == 3
    assert "SHORT: 60 rows; 133 needed" in result.stderr
    assert "FLAT: close never changes" in result.stderr
    assert "Networks" in result.stdout and "1 LSTM" in result.stdout
    assert re.search(r"Error +\d\.\d{4} times that of 'unchanged', the median", result.stdout)
    assert "was skipped by the fit: 60 rows" in desk("predict", "SHORT").stderr
    late = desk("predict", "LONG").stderr  # not the sessions of an exchange
    assert re.search(
        r"stale: LONG \(ends 2021-\S+, [\d,]+ steps behind\)\. Once there are new", late
    )


@pytest.mark.slow
def test_what_a_search_has_chosen_is_said(tmp_path, settings):
    desk = Desk(tmp_path)
    desk.write(prices("LONG", 400))
    done = desk("fit", "--source", f"files:{desk.path}", "--config", settings, "--tune")
    chosen = r"Tuned +hidden \d+ \(1\); learning rate \S+ \(1\); weight decay \S+ \(1\)"
    assert re.search(chosen, done.stdout), done.output


def test_predict_prints_a_table_by_date(home):
    result = run("predict", "aapl", "--home", home)
    assert result.exit_code == 0
    assert "AAPL   last close" in result.stdout and "on 2025-12-31" in result.stdout
    assert "2026-01-02" in result.stdout
    for heading in ("median", "80 % band", "95 % band", "P(rise)"):
        assert heading in result.stdout
    assert "Simulated prices" in result.stderr


def test_unknown_tickers_are_named_with_what_is_near(home):
    message = error("predict", "APL", "--home", home, code=1)
    assert "APL: not among the 5 series of the model; near: AAPL" in message
    result = run("predict", "KO", "APL", "--home", home)
    assert result.exit_code == 3 and "KO   last close" in result.stdout


USAGE = [
    (("fit", "--tickers", "{tmp}/none.txt"), "none.txt: cannot be read: No such file"),
    (("fit", "--tickers", "{tmp}/binary.txt"), "binary.txt: not a text file"),
    (("fit", "--tickers", "dow30"), "'dow30' is not a file; expected a file or tickers between"),
    (("fit", "--source", "yahoo"), "name them: --tickers AAPL,MSFT, or --tickers FILE"),
    (("fit", "--source", "nasdaq"), "expected yahoo, simulated or files:PATH"),
    (("fit", "--source", "files:{tmp}/none.csv"), "no such file or folder"),
    (("fit", "--source", "simulated", "--horizon", "0"), "horizon: expected a whole number of 1"),
    (("fit", "--source", "simulated", "--model", "perceiver"), "'perceiver' is not one of"),
    (("fit", "--source", "simulated", "--config", "{tmp}/bad.toml"), "no setting 'hiden'; there"),
    (("fit", "--source", "simulated", "--start", "soon"), "'soon' does not match the format"),
    (("predict",), "name tickers, use --all"),
    (("predict", "AAPL", "--all"), "name tickers, use --all"),
    (("predict", "AAPL", "--level", "0.8"), "did you mean 80?"),
    (("predict", "AAPL", "--output", "f.xls"), "cannot write '.xls'; expected .csv, .json, "),
    (("predict", "AAPL", "--output", "{tmp}/full.csv"), "full.csv exists; choose another file"),
    (("predict", "AAPL", "--output", "{tmp}/no/f.csv"), "/no; make it first, or choose another"),
    (("predict", "AAPL", "--plot", "{tmp}/no/f.png"), "no/f.png: there is no folder"),
    (("predict", "AAPL", "--output", "{tmp}"), "is a folder; expected the name of a file"),
    (("predict", "AAPL", "--plot", "f"), "a file without an ending; expected .png, .svg, .pdf"),
    (("predict", "AAPL", "--history", "9"), "add --plot FILE.png"),
    (("predict", "AAPL", "--paths", "9", "--plot", "{tmp}/p.png"), "leave one of them out"),
    (("fit", "--learn-from", "x"), "--learn-from is gone; fit more tickers"),
    (("fit", "--head", "x"), "--head is gone; leave it out"),
    (("fit", "--tune", "--source", "simulated", "--members", "3"), "Leave out members = 3"),
    (("fit", "--tune", "--source", "simulated", "--start-from", "pooled"), "out start = pooled"),
    (("predict", "AAPL", "--format", "csv", "--output", "f.xlsx"), "says excel, --format says csv"),
    (("predict", "--all", "--format", "parquet"), "needs --output"),
    (("report", "--output", "r.pdf"), "cannot write '.pdf'; expected .html"),
    (("evaluate", "--source", "simulated", "--output", "{tmp}/no/e"), "there is no folder"),
    (("export", "--output", "{tmp}/full.csv"), "exists; choose another file, or add --overwrite"),
    (("fit", "--resume", "--memory", "4GB"), "the fit began with; leave out --memory"),
    *((("fit", "--source", "simulated", "--memory", size), f"--memory {size}: expected a size")
      for size in ("2", "lots", "-1GB")),
    *((("fit", "--source", "simulated", "--memory", size), "about 0.8 GB; expected more")
      for size in ("10MB", "800MB")),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), USAGE)
def test_wrong_usage_exits_with_2(args, message, tmp_path, home):
    (tmp_path / "full.csv").write_text("mine")
    (tmp_path / "binary.txt").write_bytes(b"\x7fELF\x00\x01")
    (tmp_path / "bad.toml").write_text("hiden = 3")
    args = [a.format(tmp=tmp_path, home=home) for a in args]
    if "--home" not in args:
        args += ["--home", str(tmp_path / "home")]
    assert message in error(*args, code=2)
    assert not list(tmp_path.rglob("model.json")) and not list(tmp_path.rglob("*.tmp*"))


def test_no_model_yet_says_what_to_do(tmp_path):
    message = error("predict", "AAPL", "--home", tmp_path, code=1)
    assert "run `forecaster fit` first" in message
    assert "run `forecaster fit` first" in run("status", "--home", tmp_path).stdout


def test_a_home_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    message = error("fit", "--source", "simulated", "--home", tmp_path / "file" / "home", code=1)
    assert "cannot be written" in message and "--home" in message


def test_a_series_that_left_the_store_is_named_and_takes_no_other_forecast_away(home, tmp_path):
    import shutil

    shutil.copytree(home, tmp_path / "home")
    before = run("predict", "--all", "--format", "csv", "--home", home).stdout
    store = Store.open(Home(tmp_path / "home"), "simulated")
    with store.locked():  # as if its file were damaged and the source no longer had it
        store.quarantine({"AAPL": "damaged"})
    result = run("predict", "--all", "--format", "csv", "--home", tmp_path / "home")
    assert result.exit_code == 3 and "AAPL: no longer stored" in result.stderr
    kept = [line for line in before.splitlines() if not line.startswith("AAPL,")]
    assert result.stdout.splitlines() == kept and len(kept) < len(before.splitlines())
    message = error("predict", "AAPL", "--home", tmp_path / "home", code=1)
    assert "AAPL: no longer stored under" in message and "forecaster ingest" in message


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_helps_tell_the_defaults_of_the_configuration(command):
    helps = {
        option.name: re.search(r"\[default: ([^\]]+)\]", option.help or "")
        for option in main.commands[command].params
        if isinstance(option, click.Option)
    }
    settings = dataclasses.asdict(fc.Config())
    settings |= {"start_from": settings["start"], "validation": "a quarter, at most 252"}
    settings["season"] = "from the dates or the values"
    most = {stage: fc.Config().limits(stage)[0] for stage in ("from pooled", "independent")}
    settings["epochs"] = (
        f"{most['independent']}; {most['from pooled']} if it starts from the pooled network"
    )
    settings.pop("start")  # there it is the first day
    compared = {name: match[1] for name, match in helps.items() if match and name in settings}
    assert len(compared) >= 6
    assert compared == {name: str(settings[name]) for name in compared}


def test_sums_of_groups_are_shown_written_and_named_where_one_lacks_a_series(home, tmp_path):
    groups, file = tmp_path / "groups.csv", tmp_path / "sums.parquet"
    groups.write_text("ticker,group,weight\naapl,mine,10\nKO,mine,5\nAAPL,long,1\n")
    done = run("predict", "--sum", groups, "--paths", 300, "--level", 80, "--quantile", 0.05,
               "--output", file, "--home", home)  # fmt: skip
    assert done.exit_code == 0, done.output
    frame = pd.read_parquet(file)
    assert frame.groupby("unique_id")["series"].first().to_dict() == {"long": 1, "mine": 2}
    groups.write_text("ticker,group\nAAPL,mine\nKO,mine\nNONE,other\nKO,other\n")
    partly = run("predict", "--sum", groups, "--home", home)
    assert partly.exit_code == 3 and "mine" in partly.stdout and "other" not in partly.stdout
    assert "other: 1 of its 2 series have no forecast: NONE" in partly.stderr
    page = ("predict", "--sum", groups, "--report", tmp_path / "p.html", "--home", home)
    assert "leave one of them out" in error(*page, code=2)
    assert "one of the three" in error("predict", "KO", "--sum", groups, "--home", home, code=2)


def test_paths_say_what_a_basket_risks(home):
    result = run("predict", "AAPL", "KO", "--paths", 400, "--home", home)
    assert result.exit_code == 0, result.output
    assert "400 paths" in result.stdout and "equal weights of 2" in result.stdout


@pytest.mark.parametrize(
    ("naive", "seasonal", "said"),
    [
        ([0.99, 1.01], [float("nan")] * 2, None),
        ([0.7, 0.8], [1.05, 1.15], "10% worse than the season before"),
        ([1.3, 1.3], [float("nan")] * 2, "30% worse than 'unchanged'"),
        ([float("inf"), 9e12], [1.0, 1.0], "are far worse than 'unchanged'"),
    ],
)
def test_a_fit_that_is_not_worth_having_says_so(naive, seasonal, said):
    from forecaster.forecasting import worse_than_simple

    table = {"mae_relative_to_naive": naive, "mae_relative_to_seasonal_naive": seasonal}
    message = worse_than_simple(pd.DataFrame(table))
    if said is None:
        assert message is None
    else:
        assert message and said in message and "--transform" in message


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes")]
)
def test_too_little_memory_is_one_clear_error(monkeypatch, tmp_path, error):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(main.commands["status"], "callback", fail)
    done = run("status", "--home", tmp_path)
    assert done.exit_code == 1
    assert re.fullmatch(r"Error: out of memory: .*\. Smaller settings .* need less\n", done.stderr)


def test_a_forecast_that_is_not_finite_is_named_and_the_others_are_written(home, monkeypatch):
    from forecaster.forecasting.predicting import forecast, simulating

    original = forecast.finite_rows

    def broken(panel, forecast):
        for values in forecast.values():
            values[panel.ids.index("KO")] = float("nan")
        return original(panel, forecast)

    for module in (forecast, simulating):
        monkeypatch.setattr(module, "finite_rows", broken)
    for more in ((), ("--paths", 20)):
        done = run("predict", "--all", *more, "--format", "csv", "--home", home)
        assert done.exit_code == 3 and "KO: the forecast is not finite" in done.stderr
        assert "\nAAPL," in done.stdout and "\nKO," not in done.stdout
