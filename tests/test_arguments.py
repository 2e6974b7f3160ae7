"""Arguments of the public functions: what is of another type is one clear error."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, UsageError
from forecaster.evaluation import BacktestOptions


@pytest.mark.parametrize("settings", [{}, {"hidden": 4}, "lstm"])
def test_settings_are_a_config(panel, settings):
    with pytest.raises(UsageError, match=r"config: expected a forecaster\.Config; got (dict|str)"):
        fc.fit(panel, settings)
    with pytest.raises(UsageError, match=r"forecaster\.Config\(\*\*settings\)"):
        fc.cross_validation(panel, settings)


@pytest.mark.parametrize(("name", "number"), [("n_windows", 2.5), ("step_size", "3")])
def test_cutoffs_are_counted_in_whole_numbers(panel, config, name, number):
    options = cast(dict[str, Any], {name: number})
    with pytest.raises(UsageError, match=f"{name}: expected a whole number; got {number!r}"):
        fc.cross_validation(panel, config, **options)


@pytest.mark.parametrize("model", ["m", None])
def test_a_model_is_not_its_name(panel, model):
    for call in (fc.predict, fc.simulate):
        with pytest.raises(UsageError, match=r"model: expected a forecaster\.Model; got .*load"):
            call(model, panel)


@pytest.mark.parametrize("level", [["a"], "80 %", [[80], [95, 90]], [80j]])
def test_levels_are_numbers(panel, config, level):
    with pytest.raises(UsageError, match="level: expected percent, such as 80; got"):
        fc.cross_validation(panel, config, level=level)


SERIES = pd.Series([1.0, 2.0], name="y")


@pytest.mark.parametrize("given", [SERIES, None, [1], {"a": 1}])
def test_covariates_are_frames(panel, given):
    for name in ("future", "static"):
        with pytest.raises(DataError, match=f"{name} covariates: expected a pandas frame; got"):
            getattr(panel, f"with_{name}")(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tickers": 5}, "tickers: expected a list of texts; got 5"),
        ({"tickers": "AAA"}, "tickers: expected a list of texts; got 'AAA'"),
        ({"mask": None}, "mask: expected a list of texts; got None"),
        ({"date_format": 5}, "date format 5: expected one such as"),
        ({"date_format": SERIES}, r"date format [\s\S]*: expected one such as"),
        ({"id_col": 5}, "id_col: expected the name of a column"),
        ({"id_col": ["a", 5]}, r"id_col: expected the names of columns; got \["),
        ({"time_col": 1}, "time_col: expected the name of a column; got 1"),
        ({"wide": SERIES}, "wide: expected True, False or None; got"),
        ({"decimal": [","]}, "decimal .*: expected a point or a comma"),
    ],
)
def test_what_tells_how_to_read_a_frame_is_text(options, message):
    frame = pd.DataFrame({"unique_id": "AAA", "ds": range(9), "y": range(9)})
    with pytest.raises(UsageError, match=message):
        fc.load_panel(frame, **options)


def test_names_of_series_and_channels_are_those_of_the_panel(panel):
    forecast = pd.DataFrame({"unique_id": list(panel.ids), "ds": panel.times[-1], "LSTM": 1.0})
    with pytest.raises(UsageError, match="'TYPO' is not in the panel; there are"):
        fc.plot_forecast(panel, forecast, "TYPO")
    with pytest.raises(UsageError, match=f"'{panel.ids[0]}' is not in the forecast; there are"):
        fc.plot_forecast(panel, forecast[1:], panel.ids[0])
    with pytest.raises(UsageError, match="forecast: expected a frame of predict; got NoneType"):
        fc.plot_forecast(panel, cast(Any, None), panel.ids[0])
    with pytest.raises(UsageError, match="history: expected a whole number of 1 or more; got None"):
        fc.plot_forecast(panel, forecast, panel.ids[0], history=cast(Any, None))
    with pytest.raises(UsageError, match=r"channel 'typo': expected one of .*adj_close"):
        panel.channel("typo")
    for name in (None, 5, [panel.ids[0], None]):
        with pytest.raises(UsageError, match="names: expected the name of an index, or a list"):
            panel.with_market(name)
    with pytest.raises(UsageError, match="market: expected one of the series"):
        panel.with_market([panel.ids[0], "typo"])


@pytest.mark.parametrize("given", [None, 5, SERIES])
def test_what_is_saved_is_a_model_and_where_is_a_folder(tmp_path, given):
    with pytest.raises(UsageError, match=r"model: expected a forecaster\.Model; got"):
        fc.save(given, tmp_path / "model")
    with pytest.raises(UsageError, match="expected the path of a folder; got"):
        fc.load(given)
    with pytest.raises(UsageError, match="card: expected one of scorecard"):
        fc.forecast_alarms(given)
    if given is not None:
        with pytest.raises(UsageError, match="expected the path of a folder; got"):
            fc.read_record(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"checkpoint": True},
            r"checkpoint: expected a forecaster.swarm.Checkpoint or None; got",
        ),
        ({"executor": 0}, "executor: expected an executor, such as .*, or None .*; got 0"),
        ({"executor": SERIES}, "executor: expected an executor"),
        ({"tune": SERIES}, "tune: expected True or False; got 0 1.0 1 2.0 Name: y"),
        ({"tune": 1}, "tune: expected True or False; got 1"),
        ({"on_progress": "print"}, "on_progress: expected a function or None; got 'print'"),
        ({"seed": 2.5}, "seed: expected a whole number; got 2.5"),
        ({"seed": True}, "seed: expected a whole number; got True"),
    ],
)
def test_what_governs_a_fit_is_checked_before_any_work(panel, config, options, message):
    with pytest.raises(UsageError, match=message):
        fc.fit(panel, config, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_paths": True}, "n_paths: expected a whole number of 1 or more; got True"),
        ({"n_paths": 10**30}, "n_paths: 1,000.* paths of .* series take .* GB, and .* are free"),
        ({"seed": -1}, "seed: expected a whole number of 0 or more; got -1"),
        ({"seed": "a"}, "seed: expected a whole number of 0 or more; got 'a'"),
    ],
)
def test_paths_are_counted_and_their_seed_is_a_number(panel, model, options, message):
    with pytest.raises(UsageError, match=message):
        fc.simulate(model, panel, **options)


@pytest.mark.parametrize("given", [True, 5, "AAA", SERIES, [1], [None], {"AAA": 1}])
def test_series_are_named_in_a_list(panel, model, given):
    for ask in (panel.only, lambda ids: fc.update(model, panel, ids)):
        with pytest.raises(UsageError, match="ids: expected a list of names"):
            ask(given)
    with pytest.raises(UsageError, match=r"ids: TYPO: not in the panel; it has "):
        panel.only([panel.ids[0], "TYPO"])
    with pytest.raises(UsageError, match="held_back: expected a whole number for each series"):
        panel.rows(given)


@pytest.mark.parametrize("given", [True, 5, [], SERIES, ""])
def test_where_a_frame_is_written_is_a_path(panel, config, given):
    with pytest.raises(UsageError, match="path: expected the path of a file; got"):
        fc.cross_validation_to_parquet(given, panel, config)


@pytest.mark.parametrize("given", [True, 5, SERIES, "x", None])
def test_a_panel_is_made_of_a_frame_or_of_arrays(panel, given):
    with pytest.raises(UsageError, match="frame: expected a pandas frame; got"):
        fc.Panel.from_frame(given)
    with pytest.raises(UsageError, match="series: expected times, values and channels by series"):
        fc.Panel.from_arrays(given)
    with pytest.raises(UsageError, match="flags: expected the flags of rows; got"):
        panel.with_flags(given)
    if given is not None and not isinstance(given, str):
        with pytest.raises(UsageError, match="unique_ids: expected the name of a series, a list"):
            panel.plot(given)


@pytest.mark.parametrize("given", [True, "AAA", [1], {"AAA": 1}])
def test_what_is_read_of_a_model_and_how_it_is_written(model, tmp_path, given):
    with pytest.raises(UsageError, match=r"encoding: expected one of forecaster\.storage\.METHODS"):
        fc.save(model, tmp_path / "m", given)
    assert not (tmp_path / "m").exists()
    with pytest.raises(UsageError, match="ids: expected a list of names, or None for all; got"):
        fc.load(fc.save(model, tmp_path / "m"), ids=given)
    with pytest.raises(UsageError, match="ids: expected a list of names; got"):
        model.only(given)
    with pytest.raises(UsageError, match="tickers: expected a list of names; got"):
        fc.Record({}, {}).of(given)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("n_windows", 0), ("n_windows", "x"), ("step_size", 0), ("baselines", "naive"),
        ("baselines", None), ("seed", 2.5), ("torch_sample", None), ("torch_sample", 0),
        ("membership", True), ("groups", {"AAA": "a"}), ("groups", SERIES),
    ],
)  # fmt: skip
def test_options_of_an_evaluation_are_checked_where_they_are_made(name, given):
    with pytest.raises(UsageError, match=f"{name}: expected "):
        BacktestOptions(**{name: given})


TIMES, NUMBERS = np.arange(5), np.ones((5, 1))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (1, r"series: expected times .*; got {'a': 1}"),
        ((TIMES, NUMBERS), r"series: expected times .* and the names of the channels"),
        (
            (TIMES, NUMBERS, "y"),
            "'a': channels: expected the names of the channels; got 'y'",
        ),
        ((5, NUMBERS, ("y",)), "series 'a': times: expected an array of dates or counters; got 5"),
        ((TIMES / 2, NUMBERS, ("y",)), "series 'a': times: expected an array of dates or counters"),
        ((TIMES, [[1.0]], ("y",)), "series 'a': values: expected an array of real numbers; got"),
        ((TIMES, NUMBERS * 1j, ("y",)), "series 'a': values: expected an array of real numbers"),
        (
            (TIMES, NUMBERS[:4], ("y",)),
            r"'a': values of shape \(4, 1\); expected \(5, 1\), as",
        ),
        ((TIMES, NUMBERS[:, 0], ("y",)), r"series 'a': values of shape \(5,\); expected \(5, 1\)"),
        ((TIMES[::-1], NUMBERS, ("y",)), "series 'a': its times are not sorted"),
    ],
)
def test_arrays_of_a_panel_fit_together(parts, message):
    with pytest.raises((UsageError, DataError), match=message):
        fc.Panel.from_arrays(cast(Any, {"a": parts}))


ARRAY, FRAME = np.array(["a", "b"]), pd.DataFrame({"a": [1]})


@pytest.mark.parametrize("given", [ARRAY, FRAME, SERIES, pd.NA, pd.NaT, np.array(3), {}])
@pytest.mark.parametrize(
    "name", ["model", "training", "transform", "start", "precision", "premium"]
)
def test_a_setting_is_one_value(name, given):
    with pytest.raises(UsageError, match=f"{name}: expected "):
        fc.Config(**{name: given})


def test_what_panels_are_changed_by_is_of_their_kind(panel):
    steps = fc.Panel.from_arrays({"a": (TIMES, NUMBERS, ("y",))})
    rows, many = np.arange(2), np.arange(3)
    for call, message in {
        lambda: panel.only(panel.ids, skipped=True): "skipped: expected reasons by series, or None",
        lambda: panel.only(panel.ids, FRAME): "skipped: expected reasons by series, or None",
        lambda: panel.without(None, None): "rows: expected an array of indices below 5; got None",
        lambda: panel.without(["a"], [0]): r"rows: expected an array of indices below 5; got \['a'",
        lambda: panel.without([5], [0]): r"rows: expected an array of indices below 5; got \[5\]",
        lambda: panel.without([[1], [1, 2]], [0]): "rows: expected an array of indices below 5",
        lambda: panel.without(rows, FRAME): "positions: expected an array of indices below",
        lambda: panel.without(rows, many): "positions: expected 2 indices, as many as rows",
        lambda: panel.with_market(panel.ids[0], forecast=pd.NA): "forecast: expected True or False",
        lambda: panel.with_market(panel.ids[0], forecast=ARRAY): "forecast: expected True or False",
        lambda: panel.until(np.array(3)): r"array\(3\) is not a date",
        lambda: panel.until(3): "3 is not a date",
        lambda: panel.until(panel.times[:2]): "is not a date",
        lambda: steps.until("2020-01-01"): "cutoff: expected a whole number, as the series count",
        lambda: steps.until(
            cast(Any, float("inf"))
        ): "cutoff: expected a whole number, as the series count",
        lambda: steps.until(cast(Any, 2.5)): "cutoff: expected a whole number, as the series count",
        lambda: steps.until(TIMES): "cutoff: expected a whole number, as the series count",
    }.items():
        with pytest.raises(UsageError, match=message):
            cast(Any, call)()
    assert panel.without([0], [3]).mask.sum() == panel.mask.sum() - 1
    assert panel.without([], []) is panel
    assert steps.until(np.array(3)).times.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "seed", [10**30, 2**32, -(2**31) - 1, pytest.param(10**5000, id="long"), np.array(3)]
)
def test_a_seed_has_32_bits(panel, config, seed):
    for call in (fc.fit, fc.cross_validation, lambda *_, seed: BacktestOptions(seed=seed)):
        with pytest.raises(UsageError, match="seed: expected a whole number"):
            call(panel, config, seed=seed)
