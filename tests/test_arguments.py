"""Arguments of the public functions: what is of another type is one clear error."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterError, UsageError
from forecaster.evaluation import BacktestOptions, evaluate_to_folder
from tests.messages import refuses

SERIES, FRAME = pd.Series([1.0, 2.0], name="y"), pd.DataFrame({"a": [1]})
LISTED = pd.DataFrame({"unique_id": "AAA", "ds": range(9), "y": range(9)})
TIMES, NUMBERS = np.arange(5), np.ones((5, 1))


@pytest.mark.parametrize(
    ("function", "name", "given"),
    [
        (fc.fit, "config", {"hidden": 4}),
        (fc.fit, "checkpoint", True),
        (fc.fit, "executor", SERIES),
        (fc.fit, "tune", SERIES),
        (fc.fit, "on_progress", "print"),
        (fc.fit, "seed", 2.5),
        (fc.fit, "seed", True),
        (fc.fit, "seed", 2**32),
        pytest.param(fc.fit, "seed", 10**5000, id="fit-seed-vast"),
        (fc.fit, "seed", np.array(3)),
        (fc.cross_validation, "n_windows", 2.5),
        (fc.cross_validation, "step_size", "3"),
        (fc.cross_validation, "level", [[80], [95, 90]]),
        (fc.cross_validation, "refit", "x"),
        (fc.cross_validation, "ends", SERIES),
    ],
)
def test_what_governs_a_fit_is_checked_before_any_work(panel, config, function, name, given):
    with refuses(UsageError) as caught:
        function(panel, **({"config": config} | {name: given}))
    assert f"{name}: " in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"tickers": 5},
        {"tickers": "AAA"},
        {"tickers": np.array("AAA")},
        {"mask": None},
        {"date_format": SERIES},
        {"id_col": ["a", 5]},
        {"time_col": 1},
        {"wide": SERIES},
        {"decimal": [","]},
    ],
)
def test_what_tells_how_to_read_a_frame_is_text(options):
    with refuses(UsageError):
        fc.load_panel(LISTED, **options)


@pytest.mark.parametrize("given", [True, "x", SERIES, None])
def test_what_is_saved_read_and_made_is_of_its_kind(panel, config, model, tmp_path, given):
    of = cast(Any, given)
    path = cast(Any, None if isinstance(given, str) else given)
    names = cast(Any, 5 if given is None else given)
    for call in [
        lambda: fc.predict(of, panel),
        lambda: fc.simulate(of, panel),
        lambda: fc.save(of, tmp_path / "model"),
        lambda: fc.load(path),
        lambda: fc.forecast_alarms(of),
        lambda: evaluate_to_folder(path, panel, config),
        lambda: evaluate_to_folder(tmp_path / "e", of, config),
        lambda: fc.Panel.from_frame(of),
        lambda: fc.Panel.from_arrays(of),
        lambda: panel.only(of),
        lambda: model.only(of),
        lambda: fc.update(model, panel, names),
    ]:
        with refuses(UsageError):
            call()
    for name in ("future", "static"):
        with refuses(DataError):
            getattr(panel, f"with_{name}")(given)


def test_names_and_arguments_of_panels_and_plots_are_checked(panel, model, tmp_path):
    forecast = pd.DataFrame({"unique_id": list(panel.ids), "ds": panel.times[-1], "LSTM": 1.0})
    steps = fc.Panel.from_arrays({"a": (TIMES, NUMBERS, ("y",))})
    one = panel.ids[0]
    wrong = cast(Any, [None, 5, "x", SERIES, FRAME, np.array(3)])
    for call in [
        lambda: fc.plot_forecast(panel, forecast, "TYPO"),
        lambda: fc.plot_forecast(panel, forecast[1:], one),
        lambda: fc.plot_forecast(panel, wrong[0], one),
        lambda: fc.plot_forecast(panel, forecast, one, history=wrong[0]),
        lambda: panel.plot(ax=wrong[3]),
        lambda: panel.channel("typo"),
        lambda: panel.with_market(wrong[1]),
        lambda: panel.with_market([one, "typo"]),
        lambda: panel.with_market(one, forecast=wrong[4]),
        lambda: panel.only([one, "TYPO"]),
        lambda: panel.until(wrong[5]),
        lambda: steps.until(cast(Any, 2.5)),
        lambda: fc.simulate(model, panel, wrong[5]),
        lambda: fc.simulate(model, panel, 2, seed=-1),
        lambda: fc.save(model, tmp_path / "m", wrong[2]),
        lambda: fc.load(fc.save(model, tmp_path / "m"), ids=wrong[2]),
        lambda: fc.Record({}, {}).of(wrong[2]),
        lambda: fc.cross_validation_to_parquet(wrong[1], panel),
    ]:
        with refuses(UsageError):
            call()
    with pytest.raises(UsageError, match=r"n_paths: 1,000.* paths of .* series take .* GB"):
        fc.simulate(model, panel, 10**30)  # what is free depends on the machine
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


@pytest.mark.parametrize("parts", [(TIMES, NUMBERS[:4], ("y",)), (TIMES[::-1], NUMBERS, ("y",))])
def test_arrays_of_a_panel_fit_together(parts):
    with refuses(ForecasterError):
        fc.Panel.from_arrays(cast(Any, {"a": parts}))


@pytest.mark.parametrize("given", [np.array(["a", "b"]), FRAME, SERIES, pd.NA, np.array(3), {}])
@pytest.mark.parametrize(
    "name", ["model", "training", "transform", "start", "precision", "premium"]
)
def test_a_setting_is_one_value(name, given):
    with refuses(UsageError):
        fc.Config(**{name: given})
