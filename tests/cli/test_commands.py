"""The commands as a user types them: results, exit codes, and one clear error for bad input."""

import dataclasses
import io
import json
import os
import re
import subprocess
import sys

import click
import matplotlib.image
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.cli import main
from forecaster.errors import ForecasterWarning
from forecaster.files import Home
from forecaster.ingest import Store
from tests.conftest import error, prices, run


def test_every_command_has_a_help_with_an_example():
    for name, command in main.commands.items():
        assert run(name, "--help").exit_code == 0
        assert command.help and f"forecaster {name}" in command.help, name


def test_fit_ends_with_what_happened_and_where_it_is(home):
    result = run("status", "--home", home)
    assert result.exit_code == 0
    assert "simulated" in result.stdout and "LSTM 4" in result.stdout
    assert "\nTraining: " in result.stdout and "\n--precision bfloat16: " in result.stdout
    assert len(list((home / "models").iterdir())) == 1
    assert list((home / "prices").glob("simulated*/AAPL.*.parquet"))


def test_fit_names_what_it_skipped_and_exits_with_3(tmp_path, settings):
    table = pd.concat([prices("LONG", 400), prices("SHORT", 60), prices("FLAT", 400, close=5.0)])
    table.to_csv(tmp_path / "p.csv", index=False)
    result = run(
        "fit", "--source", f"files:{tmp_path / 'p.csv'}", "--config", settings, "--home", tmp_path
    )
    assert result.exit_code == 3
    assert "SHORT: 60 rows; 133 needed" in result.stderr
    assert "FLAT: close never changes" in result.stderr
    assert "Networks" in result.stdout and "1 LSTM" in result.stdout
    assert "was skipped by the fit: 60 rows" in error(
        "predict", "SHORT", "--home", tmp_path, code=1
    )
    late = run("predict", "LONG", "--home", tmp_path).stderr  # not the sessions of an exchange
    assert re.search(
        r"stale: LONG \(ends 2021-\S+, [\d,]+ steps behind\)\. Once there are new", late
    )


def test_predict_prints_a_table_by_date(home):
    result = run("predict", "aapl", "--home", home)
    assert result.exit_code == 0
    assert "AAPL   last close" in result.stdout and "on 2025-12-31" in result.stdout
    assert "2026-01-02" in result.stdout
    for heading in ("median", "80 % band", "95 % band", "P(rise)"):
        assert heading in result.stdout
    assert "Simulated prices" in result.stderr


def test_predict_all_gives_one_line_a_series(home, tmp_path):
    for form in ("csv", "json", "parquet"):
        path = tmp_path / f"out.{form}"
        result = run(
            "predict", "--all", "--level", 50, "--format", form, "--output", path, "--home", home
        )
        assert result.exit_code == 0 and result.stdout == ""
    frames = [
        pd.read_csv(tmp_path / "out.csv"),
        pd.read_json(tmp_path / "out.json"),
        pd.read_parquet(tmp_path / "out.parquet"),
    ]
    for frame in frames:
        assert len(frame) == 15 and "LSTM-lo-50" in frame
        pd.testing.assert_series_equal(frame["LSTM"], frames[2]["LSTM"])


def test_predict_prints_csv_and_json(home):
    csv = pd.read_csv(io.StringIO(run("predict", "KO", "--format", "csv", "--home", home).stdout))
    rows = json.loads(run("predict", "KO", "--format", "json", "--home", home).stdout)
    assert csv["LSTM"].tolist() == pytest.approx([row["LSTM"] for row in rows])


def test_one_ticker_is_forecast_as_in_company(home):
    alone = run("predict", "KO", "--format", "csv", "--home", home).stdout.splitlines()
    everyone = run("predict", "--all", "--format", "csv", "--home", home).stdout.splitlines()
    assert set(alone) <= set(everyone)


def test_predict_draws_a_fan(home, tmp_path):
    path = tmp_path / "fan.png"
    assert run("predict", "AAPL", "KO", "--plot", path, "--home", home).exit_code == 0
    picture = matplotlib.image.imread(path)
    assert (
        picture.shape[0] > 500 and len({tuple(p) for p in picture[::20, ::20].reshape(-1, 4)}) > 5
    )


def test_unknown_tickers_are_named_with_what_is_near(home):
    message = error("predict", "APL", "--home", home, code=1)
    assert "APL: not among the 5 series of the model; near: AAPL" in message
    result = run("predict", "KO", "APL", "--home", home)
    assert result.exit_code == 3 and "KO   last close" in result.stdout


USAGE = [
    (("fit", "--tickers", "{tmp}/none.txt"), "none.txt: cannot be read: No such file"),
    (("fit", "--tickers", "{tmp}/empty.txt"), "empty.txt: no ticker in it"),
    (("fit", "--tickers", "{tmp}/binary.txt"), "binary.txt: not a text file"),
    (("fit", "--tickers", "{tmp}"), "cannot be read: Is a directory"),
    (("fit", "--source", "simulated", "--horizon", "0"), "horizon: expected a whole number of 1"),
    (("fit", "--source", "simulated", "--lookback", "-3"), "lookback: expected a whole number"),
    (
        ("fit", "--source", "simulated", "--config", "{tmp}/bad3.toml"),
        "burn_in: expected less than",
    ),
    (("fit", "--source", "simulated", "--model", "perceiver"), "'perceiver' is not one of"),
    (("fit", "--source", "simulated", "--model", "mlp", "--training", "sequence"), "windowed"),
    (("fit", "--source", "simulated", "--config", "{tmp}/none.toml"), "cannot be read: No such"),
    (("fit", "--source", "simulated", "--config", "{tmp}/bad.toml"), "no setting 'hiden'; there"),
    (("fit", "--source", "simulated", "--config", "{tmp}/bad2.toml"), "epochs: expected a whole"),
    (("fit", "--source", "simulated", "--start", "soon"), "'soon' does not match the format"),
    (("fit", "--source", "nasdaq"), "expected yahoo, simulated or files:PATH"),
    (("fit", "--source", "files:{tmp}/none.csv"), "no such file or folder"),
    (("fit", "--source", "yahoo"), "name them: --tickers AAPL,MSFT, or --tickers FILE"),
    (("fit", "--tickers", "dow30"), "'dow30' is not a file; expected a file or tickers between"),
    (
        ("fit", "--tickers", "AAPL,M$FT"),
        "'AAPL,M$FT' is neither a file nor a list of tickers: 'M",
    ),
    (("fit", "--tickers", "dow3.txt"), "dow3.txt: cannot be read: No such file"),
    (("predict",), "name tickers, use --all"),
    (("predict", "AAPL", "--all"), "name tickers, use --all"),
    (("predict", "AAPL", "--level", "100"), "expected percent above 0 and below 100; got 100"),
    (("predict", "AAPL", "--level", "0.8"), "did you mean 80?"),
    (("predict", "AAPL", "--output", "f.xls"), "cannot write '.xls'; expected .csv, .json, "),
    (("predict", "AAPL", "--output", "{tmp}/full.csv"), "full.csv exists; choose another file"),
    (
        ("predict", "AAPL", "--output", "f.txt"),
        "f.txt: cannot write '.txt'; expected .csv, .json, .parquet, .xlsx, or add --format",
    ),
    (("scorecard", "--output", "f.txt"), "f.txt: cannot write '.txt'; expected .csv, "),
    (("predict", "AAPL", "--output", "{tmp}"), "is a folder; expected the name of a file"),
    (("predict", "AAPL", "--output", "{tmp}/no/f.csv"), "/no; make it first, or choose another"),
    (("predict", "AAPL", "--plot", "{tmp}/no/f.png"), "no/f.png: there is no folder"),
    (("predict", "AAPL", "--history", "9"), "add --plot FILE.png"),
    (("predict", "AAPL", "--format", "csv", "--output", "f.xlsx"), "says excel, --format says csv"),
    (("report", "--output", "r.pdf"), "cannot write '.pdf'; expected .html"),
    (("evaluate", "--source", "simulated", "--output", "{tmp}/no/e"), "there is no folder"),
    (("export", "--output", "f.txt"), "cannot write '.txt'; expected .csv, .json, "),
    (("export", "--output", "{tmp}/full.csv"), "exists; choose another file, or add --overwrite"),
    (("predict", "--all", "--format", "parquet"), "needs --output"),
    (("predict", "AAPL", "--plot", "{tmp}/fan.xyz", "--home", "{home}"), "cannot write '.xyz'"),
    (("fit", "--source", "simulated", "--tickers", ""), "cannot be read"),
    (("fit", "--source", "simulated", "--validation", "3"), "at least horizon + 9 = 14"),
]


@pytest.mark.parametrize(("args", "message"), USAGE)
def test_wrong_usage_exits_with_2(args, message, tmp_path, home):
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "full.csv").write_text("mine")
    (tmp_path / "binary.txt").write_bytes(b"\x7fELF\x00\x01")
    (tmp_path / "bad.toml").write_text("hiden = 3")
    (tmp_path / "bad2.toml").write_text("epochs = 2.5")
    (tmp_path / "bad3.toml").write_text("burn_in = 60")
    args = [a.format(tmp=tmp_path, home=home) for a in args]
    if "--home" not in args:
        args += ["--home", str(tmp_path / "home")]
    assert message in error(*args, code=2)
    assert not list(tmp_path.rglob("model.json")) and not list(tmp_path.rglob("*.tmp*"))


ONE = prices("AAA", 400)
BAD_DATA = {
    "no column": (ONE.drop(columns="close"), "no column 'close'"),
    "text in a price": (ONE.assign(close=["x", *ONE["close"][1:]]), "line 2, column 'close': 'x'"),
    "a date that is none": (ONE.replace("2020-01-02", "32.13."), "line 3, column 'date': '32.13.'"),
    "no positive price": (ONE.assign(close=-ONE["close"]), "a price must be above zero"),
    "one day twice": (pd.concat([ONE, ONE.tail(1)]), "AAA: more than one row for 2021-07-13"),
    "too short": (ONE.head(100), "AAA: 100 rows; 133 needed"),
    "no number": (ONE.assign(close=None), "AAA: column 'close' holds no number"),
    "constant": (ONE.assign(close=3.0), "AAA: close never changes"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_exits_with_1_and_leaves_no_model(case, tmp_path, settings):
    table, message = BAD_DATA[case]
    table.to_csv(tmp_path / "p.csv", index=False)
    source = f"files:{tmp_path / 'p.csv'}"
    home = tmp_path / "home"
    assert message in error("fit", "--source", source, "--config", settings, "--home", home, code=1)
    assert not (home / "models").exists()
    assert not [p for p in home.rglob("*") if p.name.startswith(".tmp")]


def test_series_that_went_bad_after_the_fit_are_named(tmp_path, settings):
    table = pd.concat([prices(name, 400) for name in ("GOOD", "TWICE", "[/x]")])
    table.to_csv(tmp_path / "p.csv", index=False)
    source = ("--source", f"files:{tmp_path / 'p.csv'}", "--home", tmp_path / "home")
    assert run("fit", *source, "--config", settings).exit_code == 0
    assert "[/x]" in run("predict", "--all", "--home", tmp_path / "home").stdout
    twice = table[table.ticker == "TWICE"].tail(1)
    pd.concat([table, twice]).to_csv(tmp_path / "p.csv", index=False)
    result = run("ingest", *source)
    assert result.exit_code == 3 and "TWICE: more than one row for 2021-07-13" in result.stderr
    assert "Not updated (1); their stored rows are kept:" in result.stderr
    result = run("predict", "--all", "--format", "csv", "--home", tmp_path / "home")
    assert result.exit_code == 0 and "TWICE" in result.stdout


def test_a_damaged_run_does_not_hide_the_others(home, tmp_path):
    import shutil

    shutil.copytree(home, tmp_path / "home")
    old = next((tmp_path / "home" / "models").iterdir())
    shutil.copytree(old, old.with_name("00000000-old"))
    (old.with_name("00000000-old") / "model.json").write_text("{")
    result = run("status", "--home", tmp_path / "home")
    assert result.exit_code == 0 and "damaged" in result.stdout and "LSTM 4" in result.stdout


def test_no_model_yet_says_what_to_do(tmp_path):
    message = error("predict", "AAPL", "--home", tmp_path, code=1)
    assert "run `forecaster fit` first" in message
    assert "run `forecaster fit` first" in run("status", "--home", tmp_path).stdout


def test_a_home_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    message = error("fit", "--source", "simulated", "--home", tmp_path / "file" / "home", code=1)
    assert "cannot be written" in message and "--home" in message


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_truncated_model_is_one_clear_error(home, tmp_path, name):
    import shutil

    shutil.copytree(home, tmp_path / "home")
    path = next((tmp_path / "home" / "models").glob(f"*/{name}"))
    path.write_bytes(path.read_bytes()[:-50])
    message = error("predict", "AAPL", "--home", tmp_path / "home", code=1)
    assert str(path) in message and "forecaster fit" in message


def test_truncated_prices_are_one_clear_error(home, tmp_path):
    import shutil

    shutil.copytree(home, tmp_path / "home")
    path = next((tmp_path / "home" / "prices").glob("*/AAPL.*.parquet"))
    path.write_bytes(path.read_bytes()[:-50])
    message = error("predict", "AAPL", "--home", tmp_path / "home", code=1)
    assert "AAPL." in message and "damaged" in message
    assert run("predict", "KO", "--home", tmp_path / "home").exit_code == 0


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


@pytest.mark.parametrize("end", ["2608-01-01", "9999-12-31"])
def test_an_end_beyond_all_dates_is_no_end(end, tmp_path, settings):
    prices("AAA", 300).to_csv(tmp_path / "p.csv", index=False)
    fit = ("fit", "--source", f"files:{tmp_path / 'p.csv'}", "--config", settings,
           "--start", "0001-01-01")  # fmt: skip
    forecasts = []
    for home, more in ((tmp_path / "a", ()), (tmp_path / "b", ("--end", end))):
        done = run(*fit, *more, "--home", home)
        assert done.exit_code == 0, done.output
        forecasts.append(run("predict", "AAA", "--format", "csv", "--home", home).stdout)
        assert "300" in run("status", "AAA", "--home", home).stdout
    assert forecasts[0] == forecasts[1] and forecasts[0].count("\n") == 4
    said = error(*fit[:-2], "--start", end, "--home", tmp_path / "c", code=1)
    assert "no rows in that span" in said


@pytest.mark.slow
def test_as_a_real_process_from_fit_to_forecast(tmp_path, settings, compiled):
    """Fits with the same seed have the same bits, and print no progress without a terminal."""
    (tmp_path / "t.txt").write_text("AAPL\nXOM")
    (tmp_path / "home" / "cache").mkdir(parents=True)
    (tmp_path / "home" / "cache" / "programs").symlink_to(compiled)
    environment = os.environ | {"FORECASTER_HOME": str(tmp_path / "home"), "COLUMNS": "200"}

    def command(*args):
        return subprocess.run(
            [sys.executable, "-m", "forecaster", *args],
            capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
        )  # fmt: skip

    outputs = []
    for _ in range(2):
        fit = command(
            "fit", "--tickers", "t.txt", "--source", "simulated", "--start", "2023-01-01",
            "--config", settings,
        )  # fmt: skip
        assert fit.returncode == 0, fit.stderr
        assert fit.stderr == "" and "not real prices" in fit.stdout
        forecast = command("predict", "AAPL", "--format", "csv")
        assert forecast.returncode == 0, forecast.stderr
        outputs.append(forecast.stdout)
    assert outputs[0] == outputs[1] and outputs[0].count("\n") == 4
    assert command("fit", "--horizon", "0", "--source", "simulated").returncode == 2
    outside = [p.name for p in tmp_path.iterdir()]
    assert sorted(outside) == ["home", "t.txt"]


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
    shown = run("predict", "--sum", groups, "--home", home)
    assert shown.exit_code == 0, shown.output
    assert "mine" in shown.stdout and "group" in shown.stdout
    done = run("predict", "--sum", groups, "--paths", 300, "--level", 80, "--quantile", 0.05,
               "--output", file, "--home", home)  # fmt: skip
    assert done.exit_code == 0, done.output
    frame = pd.read_parquet(file)
    assert {"LSTM", "LSTM-lo-80", "LSTM-q-0.05", "mean", "probability_of_rise"}.issubset(frame)
    assert frame.groupby("unique_id")["series"].first().to_dict() == {"long": 1, "mine": 2}
    groups.write_text("ticker,group\nAAPL,mine\nKO,mine\nNONE,other\nKO,other\n")
    partly = run("predict", "--sum", groups, "--home", home)
    assert partly.exit_code == 3 and "mine" in partly.stdout and "other" not in partly.stdout
    assert "other: 1 of its 2 series have no forecast: NONE" in partly.stderr
    page = ("predict", "--sum", groups, "--report", tmp_path / "p.html", "--home", home)
    assert "leave one of them out" in error(*page, code=2)
    assert "one of the three" in error("predict", "KO", "--sum", groups, "--home", home, code=2)


def test_paths_say_what_a_basket_risks_and_are_written(home, tmp_path):
    result = run("predict", "AAPL", "KO", "--paths", 400, "--home", home)
    assert result.exit_code == 0, result.output
    assert "400 paths" in result.stdout and "equal weights of 2" in result.stdout
    file = tmp_path / "paths.parquet"
    assert (
        run("predict", "AAPL", "KO", "--paths", 20, "--output", file, "--home", home).exit_code == 0
    )
    frame = pd.read_parquet(file)
    assert frame.groupby("unique_id")["sample_id"].nunique().to_dict() == {"AAPL": 20, "KO": 20}
    message = error(
        "predict", "KO", "--paths", 9, "--plot", tmp_path / "p.png", "--home", home, code=2
    )
    assert "leave one of them out" in message


@pytest.mark.parametrize(
    ("naive", "seasonal", "said"),
    [
        ([0.99, 1.01], [float("nan")] * 2, None),
        ([0.7, 0.8], [1.05, 1.15], "10% worse than the season before"),
        ([1.3, 1.3], [float("nan")] * 2, "30% worse than 'unchanged'"),
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


def test_a_fit_in_python_warns_as_the_command_does():
    rng = np.random.default_rng(8)
    jumps = pd.DataFrame({"a": np.r_[rng.normal(size=40), 1e3 + rng.normal(size=8)]})
    jumps.index = pd.date_range("2024", periods=48)
    with pytest.warns(ForecasterWarning, match="worse than 'unchanged': use that instead, or"):
        fc.fit(jumps, fc.Config(horizon=2, model="theta"))


def test_a_search_refuses_settings_that_it_does_not_keep(tmp_path):
    arguments = "fit", "--tune", "--source", "simulated", "--home", tmp_path
    assert "Leave out members = 3" in error(*arguments, "--members", 3, code=2)
    assert "Leave out start = pooled" in error(*arguments, "--start-from", "pooled", code=2)


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


def test_a_forecast_that_is_not_finite_is_named_and_the_others_are_written(
    home, tmp_path, monkeypatch
):
    from forecaster.forecasting.predicting import predicting, simulating

    original = predicting.finite_rows

    def broken(panel, forecast):
        for values in forecast.values():
            values[panel.ids.index("KO")] = float("nan")
        return original(panel, forecast)

    for module in (predicting, simulating):
        monkeypatch.setattr(module, "finite_rows", broken)
    for more in ((), ("--paths", 20)):
        file = tmp_path / f"{len(more)}.csv"
        done = run("predict", "--all", *more, "--output", file, "--home", home)
        assert done.exit_code == 3, done.output
        assert "KO: the forecast is not finite" in done.stderr
        written = set(pd.read_csv(file)["unique_id"])
        assert "KO" not in written and "AAPL" in written
    groups = tmp_path / "groups.csv"
    groups.write_text("ticker,group\nAAPL,mine\nKO,other\n")
    done = run("predict", "--sum", groups, "--home", home)
    assert done.exit_code == 3 and "mine" in done.stdout
