"""A damaged or hostile model folder: a model that forecasts, or one clear error."""

import json
import operator
import os
import re
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError
from forecaster.forecasting import rename_series
from forecaster.storage import METHODS
from tests.storage.mutants import ARRAYS, JSON, mutate, sign

MOST_MEMORY = 1 << 30  # bytes that all mutants together may add


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return fc.save(model, tmp_path_factory.mktemp("models") / "run")


@pytest.fixture(scope="module")
def small(model, tmp_path_factory):
    """The same, written in bytes and half of it left out."""
    encoding = METHODS["int8-pruned-50"]
    return fc.save(model, tmp_path_factory.mktemp("small") / "run", encoding)


def peak() -> int:
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loads_and_predicts_or_is_named(folder, panel) -> bool:
    """Whether it could be used; any error but ModelError passes through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = fc.predict(fc.load(folder), panel)
    except ModelError as error:
        assert str(error).strip() and len(str(error)) < 2000
        return False
    numbers = frame.select_dtypes("number").to_numpy()
    assert len(frame) and np.isfinite(numbers).all()
    return True


@pytest.mark.parametrize("count", [120, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", ["folder", "small"])
def test_a_mutant_loads_and_predicts_or_is_a_model_error(
    which, count, panel, request, tmp_path, unchecked
):
    original = request.getfixturevalue(which)
    assert loads_and_predicts_or_is_named(original, panel)
    before, sound = peak(), 0
    for number in range(count):
        mutant = tmp_path / str(number)
        shutil.copytree(original, mutant)
        what = mutate(mutant, np.random.default_rng(number))
        try:
            sound += loads_and_predicts_or_is_named(mutant, panel)
        except Exception as error:
            raise AssertionError(f"mutant {number}, {what}: {error!r}") from error
        shutil.rmtree(mutant)
    assert 0 < sound < count / 2  # the mutants are neither all harmless nor all refused
    assert peak() - before < MOST_MEMORY


def test_a_time_series_of_the_other_kind_is_named(model):
    counted = pd.DataFrame({"unique_id": "AAPL", "ds": np.arange(300), "y": np.arange(300.0)})
    with pytest.raises(ModelError, match="whose times are dates; these have the other kind"):
        fc.predict(model, fc.load_panel(counted))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 1, "x": ' + "[" * 100_000, "nested too deeply"),
        ('{"schema": 1e999}', "'1e999' is beyond any number"),
        ('{"schema": NaN}', "NaN is not JSON"),
        ('{"schema": 1.5}', "no schema version"),
        ('{"schema": ' + "1" * 5000 + "}", "cannot be read"),
        ('"text"', "expected an object"),
    ],
)
def test_json_that_is_none_is_named(text, message, folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    (run / JSON).write_text(text)
    with pytest.raises(ModelError, match=message):
        fc.load(run)


def with_change(folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of a model's folder in which the fields of its JSON are changed."""
    run = shutil.copytree(folder, tmp_path / "run")
    rest = json.loads((run / JSON).read_text())
    change(rest)
    (run / JSON).write_text(json.dumps(rest))
    return run


def settings(**new):
    return lambda rest: rest["config"].update(new)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (settings(validation=2**31 - 1), "scores: expected float32 .*2147483647"),
        (settings(hidden=10_000), "hidden: the arrays are of a smaller network"),
        (settings(layers=100), "layers: the arrays are of a smaller network"),
        (settings(horizon=10_000, validation=30_000), "horizon: the arrays are of a smaller"),
        (settings(wrong=1), "no setting 'wrong'"),
        (settings(transform="difference"), "expected difference; got log_return"),
        (lambda rest: rest.update(target="x"), "'x' is none of the channels"),
        (lambda rest: rest["transform"].update(name="x"), "transform: expected one of"),
        (lambda rest: rest["frequency"].update(alias="?"), "Invalid frequency"),
        (
            lambda rest: rest["frequency"].update(step=True),
            r"got `bool` - at `\$.step`",
        ),
        (lambda rest: rest["ids"].__setitem__(0, rest["ids"][1]), "ids: expected names, each once"),
        (
            lambda rest: rest["ids"].__setitem__(0, 7),
            r"ids: Expected `str`, got `int` - at",
        ),
        (lambda rest: rest["fitted_until"].__setitem__(0, "now"), "Invalid isoformat"),
        (
            lambda rest: rest["fitted_until"].__setitem__(0, 5),
            "fitted_until: Expected `str`",
        ),
        (lambda rest: rest["fitted_until"].__setitem__(0, "9999-12-31"), "9999-12-31"),
        (
            lambda rest: rest["spacing"].__setitem__(0, 0),
            "spacing: Expected `float` > 0.0",
        ),
        (lambda rest: rest["report"].update(mae=[1]), "report: 'mae': 1 rows for 5 series"),
        (lambda rest: rest["report"].pop("mae_relative_to_naive"), "_naive: missing"),
        (
            lambda rest: rest["report"].update(mae_relative_to_naive=["x"] * 5),
            "_naive: Expected `float ",
        ),
        (
            lambda rest: rest["report"].update(status=[1.0] * 5),
            "status: Expected `str ",
        ),
        (lambda rest: rest["report"].update(mae=["x", 1, 1, 1, 1]), "expected numbers or text"),
        (
            lambda rest: rest["provenance"].update(mask="x"),
            r"got `str` - at `\$.mask`",
        ),
        (
            lambda rest: rest["provenance"].update(source=[1]),
            r"got `array` - at `\$.source`",
        ),
        (lambda rest: rest["provenance"].update(findings=[1]), r"got `int` - at `\$.findings"),
        (lambda rest: rest.pop("target"), "target: missing"),
    ],
)
def test_a_field_that_is_wrong_is_named(change, message, folder, tmp_path):
    run = with_change(folder, tmp_path, change)
    with pytest.raises(ModelError, match=f"not a model of this program: .*{message}"):
        fc.load(run)


def rewritten(folder, tmp_path, **arrays):
    """The folder with other arrays, whose hash is right."""
    from safetensors.numpy import load, save

    run = shutil.copytree(folder, tmp_path / "run")
    made = load((run / ARRAYS).read_bytes()) | {k.replace("__", "/"): v for k, v in arrays.items()}
    (run / ARRAYS).write_bytes(save(made))
    sign(run)
    return run


def test_arrays_that_are_wrong_are_named(folder, small, panel, tmp_path):
    cases = [
        (folder, {"params__constants": np.full((5, 3), np.nan, "f")}, "weights are not finite"),
        (folder, {"params__constants": np.zeros((5, 3))}, "expected float32 .*got float64"),
        (folder, {"params__constants": np.zeros((5, 4), "f")}, r"expected float32 \(5, 3\)"),
        (folder, {"params__more": np.zeros((5, 3), "f")}, "differing: .'params/more'"),
        (small, {"shape__params__out__kernel": np.full((5, 2), 2**30, "i")}, "for each series"),
        (small, {"kept__params__out__kernel": np.zeros((5, 3), np.uint8)}, "weights of each serie"),
    ]
    for number, (original, arrays, message) in enumerate(cases):
        run = rewritten(original, tmp_path / str(number), **arrays)
        with pytest.raises(ModelError, match=message):
            fc.load(run)
    wild = rewritten(folder, tmp_path, params__out__bias=np.full((5, 6), 3e38, "f"))
    with pytest.raises(ModelError, match="AAPL and 4 more: the forecast is not finite"):
        fc.predict(fc.load(wild), panel)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", [JSON, ARRAYS])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name, folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(ModelError, match="not a plain file"):
        fc.load(run)


def test_a_file_larger_than_any_model_is_not_read(folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    with open(run / JSON, "r+b") as file:
        file.truncate(1 << 40)  # a hole, which takes no space
    with pytest.raises(ModelError, match=f"{1 << 40} bytes; expected .* at most"):
        fc.load(run)


def test_a_header_that_promises_more_than_there_is_is_named(folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    (run / ARRAYS).write_bytes(struct.pack("<Q", 1 << 62) + (run / ARRAYS).read_bytes()[8:])
    sign(run)
    with pytest.raises(ModelError, match="not a model of this program"):
        fc.load(run)


@pytest.mark.parametrize("lookback", [100_000_000, 10**30])
def test_a_window_is_not_longer_than_the_histories(lookback, panel, config, tmp_path):
    """Nothing in the arrays of an LSTM bounds it; the rest of such a window would be padding."""
    resource = pytest.importorskip("resource")
    short = panel.until(panel.times[60])
    few = fc.Config(hidden=4, horizon=1, epochs=1, start="independent", members=1)
    folder = fc.save(fc.fit(short, few), tmp_path / "run")
    expected = fc.predict(fc.load(folder), short)
    rest = json.loads((folder / JSON).read_text())
    rest["config"] |= {"lookback": lookback, "burn_in": 0}
    (folder / JSON).write_text(json.dumps(rest))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    got = fc.predict(fc.load(folder), short)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB
    assert len(got) == len(expected) and np.isfinite(got["LSTM"]).all()


def test_windows_of_a_network_of_ones_own_that_do_not_fit_into_memory_are_refused(monkeypatch):
    from forecaster.forecasting.predicting import predicting

    config = fc.Config(lookback=10**9, model="mlp")
    with pytest.raises(ModelError, match="windows of 1000000000 steps need 37 GiB"):
        monkeypatch.setattr(predicting, "free_memory", lambda: 2**30)
        predicting._check_window(config, 300, 1, 10)


@pytest.fixture(scope="module")
def classical(tmp_path_factory):
    """A model that is ETS alone."""
    days = pd.date_range("2024-01-01", periods=80)
    rows = {"unique_id": "a", "ds": days, "y": np.arange(80.0) % 7}
    model = fc.fit(fc.load_panel(pd.DataFrame(rows)), fc.Config(model="ets", horizon=2))
    return fc.save(model, tmp_path_factory.mktemp("classical") / "run")


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("transform", {"alone": "theta"}, "transform: alone: expected 'ets'; got 'theta'"),
        ("transform", {"alone": None}, "transform: alone: expected 'ets'; got None"),
        ("config", {"model": "ces"}, "transform: alone: expected 'ces'; got 'ets'"),
        ("config", {"model": "lstm"}, "transform: alone: expected None; got 'ets'"),
    ],
)
def test_the_classical_model_is_that_of_the_settings(classical, tmp_path, part, changes, message):
    assert fc.load(classical).transform.alone == "ets"
    run = with_change(classical, tmp_path, lambda rest: rest[part].update(changes))
    with pytest.raises(ModelError, match=message):
        fc.load(run)


def nature(**new):
    return lambda rest: rest["transform"]["natures"]["a"].update(new)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            nature(seasons=[2**31 - 2], spacing=0.001),
            r"transform: Expected `int` <= 1000000 - at `\$.natures\[...\].seasons\[0\]`",
        ),
        (
            nature(seasons=list(range(2, 60_000))),
            "transform: Expected `array` of length <= 10",
        ),
        (
            nature(seasons=[86_400], spacing=10.0),
            "'a': spacing: expected 0, or 86.4 to 8.64e.07; got",
        ),
        (nature(spacing=1e-308), "'a': spacing: expected 0, or 86.4 to 8.64e.07; got 1e-308"),
        (nature(spacing=-1), "'a': spacing: expected 0, or 86.4"),
        (
            lambda rest: rest["transform"]["natures"].update(
                b=rest["transform"]["natures"]["a"] | {"spacing": 1e-308}
            ),
            "'b': spacing: expected 0, or 1e-09 to",
        ),
        (
            lambda rest: rest["transform"]["learned"].update(common_seasons=[7] * 100_000),
            "transform: Expected `array` of length <= 10",
        ),
        *(
            (
                lambda rest, learned=learned: operator.setitem(
                    rest["transform"]["natures"]["a"]["components"], 4, learned
                ),
                "transform: .*`int`",
            )
            for learned in (10**30, 1e308, -1e308, -1, True, None)
        ),
    ],
)
def test_what_a_series_was_found_to_be_is_plausible(classical, tmp_path, change, message):
    run = with_change(classical, tmp_path, change)
    with pytest.raises(ModelError, match=f"{re.escape(str(run))}: not a model .*: {message}"):
        fc.load(run)


@pytest.mark.slow
def test_each_series_has_the_scales_of_its_covariates(tmp_path):
    days = pd.date_range("2024-01-01", periods=80)
    panel = fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": days, "y": np.arange(80.0) % 7}))
    known = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=90), "open": np.arange(90) % 2})
    panel = panel.with_future(known)
    run = fc.save(fc.fit(panel, fc.Config(horizon=2)), tmp_path / "run")
    assert len(fc.predict(fc.load(run), panel)) == 2
    rest = json.loads((run / JSON).read_text())
    for scales in ({}, [], "", {"b": [[0, 1]]}):
        rest["transform"]["covariates"]["scales"] = scales
        (run / JSON).write_text(json.dumps(rest))
        with pytest.raises(ModelError, match="transform: covariates: scales: none for a"):
            fc.load(run)


@pytest.mark.slow
def test_a_renamed_series_keeps_the_scales_of_its_covariates():
    days = pd.date_range("2024-01-01", periods=80)
    frame = pd.DataFrame({"unique_id": "a", "ds": days, "y": np.arange(80.0) % 7})
    known = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=90), "open": np.arange(90) % 2})
    panels = [fc.load_panel(frame.assign(unique_id=name)).with_future(known) for name in ("a", "b")]
    model = fc.fit(panels[0], fc.Config(horizon=2, model="lstm", epochs=1, members=1))
    expected = fc.predict(model, panels[0]).drop(columns="unique_id")
    got = fc.predict(rename_series(model, {"a": "b"}), panels[1]).drop(columns="unique_id")
    pd.testing.assert_frame_equal(got, expected, check_exact=True)
