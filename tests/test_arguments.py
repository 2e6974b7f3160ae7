"""Arguments of the public functions: what is of another type is one clear error."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, UsageError
from forecaster.evaluation import BacktestOptions, evaluate_to_folder
from tests.messages import refuses

SERIES, FRAME = pd.Series([1.0, 2.0], name="y"), pd.DataFrame({"a": [1]})
LISTED = pd.DataFrame({"unique_id": "AAA", "ds": range(9), "y": range(9)})
TIMES, NUMBERS = np.arange(5), np.ones((5, 1))
A_MODEL = r"model: expected a forecaster\.Model, .*; got"
A_FOLDER = "expected the path of a folder; got"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": {"hidden": 4}}, r"config: .*forecaster\.Config\(\*\*settings\) .*; got"),
        ({"checkpoint": True}, r"checkpoint: expected a forecaster.swarm.Checkpoint or None; got"),
        ({"executor": SERIES}, "executor: expected an executor, such as .*, or None"),
        ({"tune": SERIES}, "tune: expected True or False; got 0 1.0 1 2.0 Name: y"),
        ({"on_progress": "print"}, "on_progress: expected a function or None; got 'print'"),
        ({"seed": 2.5}, "seed: expected a whole number; got 2.5"),
        ({"seed": True}, "seed: expected a whole number; got True"),
        ({"seed": 2**32}, "seed: expected a whole number"),
        ({"seed": 10**5000}, "seed: expected a whole number"),
        ({"seed": np.array(3)}, "seed: expected a whole number"),
    ],
)
def test_what_governs_a_fit_is_checked_before_any_work(panel, config, options, message):
    with pytest.raises(UsageError, match=message):
        fc.fit(panel, **({"config": config} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_windows": 2.5}, "n_windows: expected a whole number of 1 or more; got 2.5"),
        ({"step_size": "3"}, "step_size: expected a whole number of 1 or more; got '3'"),
        ({"level": [[80], [95, 90]]}, "level: expected percent .* such as 80; got"),
        ({"refit": "x"}, "refit: expected True, False or a whole number of 1 or"),
        ({"ends": SERIES}, "ends: expected one of auto, common, own; got"),
    ],
)
def test_what_governs_a_cross_validation_is_checked(panel, config, options, message):
    with pytest.raises(UsageError, match=message):
        fc.cross_validation(panel, config, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tickers": 5}, "tickers: expected a list of texts; got 5"),
        ({"tickers": "AAA"}, "tickers: expected a list of texts; got 'AAA'"),
        ({"tickers": np.array("AAA")}, "tickers: expected a list of texts; got"),
        ({"mask": None}, "mask: expected a list of texts; got None"),
        ({"date_format": SERIES}, r"date format [\s\S]*: expected one such as"),
        ({"id_col": ["a", 5]}, r"id_col: expected the names of columns; got \["),
        ({"time_col": 1}, "time_col: expected the name of a column; got 1"),
        ({"wide": SERIES}, "wide: expected True, False or None; got"),
        ({"decimal": [","]}, "decimal .*: expected a point or a comma"),
    ],
)
def test_what_tells_how_to_read_a_frame_is_text(options, message):
    with pytest.raises(UsageError, match=message):
        fc.load_panel(LISTED, **options)


@pytest.mark.parametrize("given", [True, "x", SERIES, None])
def test_what_is_saved_read_and_made_is_of_its_kind(panel, config, model, tmp_path, given):
    of = cast(Any, given)
    path = cast(Any, None if isinstance(given, str) else given)
    names = cast(Any, 5 if given is None else given)
    for call, message in [
        (lambda: fc.predict(of, panel), A_MODEL),
        (lambda: fc.simulate(of, panel), A_MODEL),
        (lambda: fc.save(of, tmp_path / "model"), A_MODEL),
        (lambda: fc.load(path), A_FOLDER),
        (lambda: fc.forecast_alarms(of), "card: expected one of scorecard"),
        (lambda: evaluate_to_folder(path, panel, config), A_FOLDER),
        (lambda: evaluate_to_folder(tmp_path / "e", of, config), "panel: expected a "),
        (lambda: fc.Panel.from_frame(of), "frame: expected a pandas frame; got"),
        (lambda: fc.Panel.from_arrays(of), "series: expected times, values and channels by"),
        (lambda: panel.only(of), "ids: expected a list of names"),
        (lambda: model.only(of), "ids: expected a list of names; got"),
        (lambda: fc.update(model, panel, names), "ids: expected a list of names"),
    ]:
        with pytest.raises(UsageError, match=message):
            call()
    for name in ("future", "static"):
        with refuses(DataError):
            getattr(panel, f"with_{name}")(given)


def test_names_and_arguments_of_panels_and_plots_are_checked(panel, model, tmp_path):
    forecast = pd.DataFrame({"unique_id": list(panel.ids), "ds": panel.times[-1], "LSTM": 1.0})
    steps = fc.Panel.from_arrays({"a": (TIMES, NUMBERS, ("y",))})
    one = panel.ids[0]
    wrong = cast(Any, [None, 5, "x", SERIES, FRAME, np.array(3)])
    for call, message in {
        lambda: fc.plot_forecast(panel, forecast, "TYPO"): "'TYPO' is not in the panel; there are",
        lambda: fc.plot_forecast(
            panel, forecast[1:], one
        ): f"'{one}' is not in the forecast; there",
        lambda: fc.plot_forecast(
            panel, wrong[0], one
        ): "forecast: expected a frame of predict; got",
        lambda: fc.plot_forecast(
            panel, forecast, one, history=wrong[0]
        ): "history: expected a whole",
        lambda: panel.plot(ax=wrong[3]): "ax: expected axes of matplotlib, or None for a",
        lambda: panel.channel("typo"): r"channel 'typo': expected one of .*adj_close",
        lambda: panel.with_market(wrong[1]): "names: expected the name of an index, or a list",
        lambda: panel.with_market([one, "typo"]): "market: 'typo' is none of the panel's series",
        lambda: panel.with_market(one, forecast=wrong[4]): "forecast: expected True or False",
        lambda: panel.only([one, "TYPO"]): r"ids: 'TYPO' is none of the panel's series; there are ",
        lambda: panel.until(wrong[5]): r"array\(3\) is not a date",
        lambda: steps.until(cast(Any, 2.5)): "cutoff: expected a whole number, as the series count",
        lambda: fc.simulate(model, panel, 10**30): "n_paths: 1,000.* paths of .* series take .* GB",
        lambda: fc.simulate(
            model, panel, wrong[5]
        ): "n_paths: expected a whole number of 1 or more",
        lambda: fc.simulate(model, panel, 2, seed=-1): "seed: expected a whole number of 0 or more",
        lambda: fc.save(
            model, tmp_path / "m", wrong[2]
        ): "encoding: expected one of forecaster.sto",
        lambda: fc.load(fc.save(model, tmp_path / "m"), ids=wrong[2]): "ids: expected a list of",
        lambda: fc.Record({}, {}).of(wrong[2]): "tickers: expected a list of names; got",
        lambda: fc.cross_validation_to_parquet(
            wrong[1], panel
        ): "path: expected the path of a file",
    }.items():
        with pytest.raises(UsageError, match=message):
            call()
    assert panel.only(cast(Any, np.array(panel.ids[:2]))).ids == panel.ids[:2]
    assert panel.without([0], [3]).mask.sum() == panel.mask.sum() - 1


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("n_windows", 0), ("step_size", 0), ("baselines", "naive"), ("seed", 2.5),
        ("torch_sample", 0), ("membership", True), ("groups", {"AAA": "a"}),
    ],
)  # fmt: skip
def test_options_of_an_evaluation_are_checked_where_they_are_made(name, given):
    with refuses(UsageError):
        BacktestOptions(**{name: given})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (1, r"series: expected times .*; got {'a': 1}"),
        ((TIMES, NUMBERS), r"series: expected times .* and the names of the channels"),
        ((TIMES, NUMBERS, "y"), "'a': channels: expected the names of the channels; got 'y'"),
        ((TIMES / 2, NUMBERS, ("y",)), "series 'a': times: expected an array of dates or counters"),
        ((TIMES, NUMBERS * 1j, ("y",)), "series 'a': values: expected an array of real numbers"),
        ((TIMES, NUMBERS[:4], ("y",)), r"'a': values of shape \(4, 1\); expected \(5, 1\), as"),
        ((TIMES[::-1], NUMBERS, ("y",)), "series 'a': its times are not sorted"),
    ],
)
def test_arrays_of_a_panel_fit_together(parts, message):
    with pytest.raises((UsageError, DataError), match=message):
        fc.Panel.from_arrays(cast(Any, {"a": parts}))


@pytest.mark.parametrize("given", [np.array(["a", "b"]), FRAME, SERIES, pd.NA, np.array(3), {}])
@pytest.mark.parametrize(
    "name", ["model", "training", "transform", "start", "precision", "premium"]
)
def test_a_setting_is_one_value(name, given):
    with refuses(UsageError):
        fc.Config(**{name: given})
