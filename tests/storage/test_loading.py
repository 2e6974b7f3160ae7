"""A damaged or hostile model folder: a model that forecasts, or one clear error."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError
from forecaster.forecasting import rename_series
from forecaster.storage import METHODS, Run
from tests.messages import refuses
from tests.storage.mutants import ARRAYS, JSON, sign


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return fc.save(model, tmp_path_factory.mktemp("models") / "run")


@pytest.fixture(scope="module")
def small(model, tmp_path_factory):
    """The same, written in bytes and half of it left out."""
    encoding = METHODS["int8-pruned-50"]
    return fc.save(model, tmp_path_factory.mktemp("small") / "run", encoding)


@pytest.fixture(scope="module")
def classical(tmp_path_factory):
    """A model that is ETS alone."""
    days = pd.date_range("2024-01-01", periods=80)
    rows = {"unique_id": "a", "ds": days, "y": np.arange(80.0) % 7}
    model = fc.fit(fc.load_panel(pd.DataFrame(rows)), fc.Config(model="ets", horizon=2))
    return fc.save(model, tmp_path_factory.mktemp("classical") / "run")


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": 1, "x": ' + "[" * 100_000,
        '{"schema": 1e999}',
        '{"schema": NaN}',
        '{"schema": 1.5}',
        '{"schema": ' + "1" * 5000 + "}",
        '"text"',
        '{"schema": 10, "config"',
        b"\xff\x00",
        '{"schema": 99}',
        '{"schema": 0, "transform": {"old": 1}}',
    ],
    ids=lambda text: text[:60] if isinstance(text, str) else None,
)
def test_json_that_is_none_or_of_another_version_is_named(text, folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    (run / JSON).write_bytes(text if isinstance(text, bytes) else text.encode())
    for read in (fc.load, Run.read):
        with refuses(ModelError):
            read(run)


def test_models_of_the_version_before_are_read_or_refused_by_their_version(classical, tmp_path):
    run = shutil.copytree(classical, tmp_path / "run")
    rest = json.loads((run / JSON).read_text()) | {"schema": 13}
    (run / JSON).write_text(json.dumps(rest))
    assert fc.load(run).ids == ("a",)
    rest["transform"]["natures"]["a"]["components"][2] = ["none", 1, [1.3, 1.0], [1.0, 1.0]]
    (run / JSON).write_text(json.dumps(rest))
    for read in (fc.load, Run.read):
        with refuses(ModelError):
            read(run)


WRONG = [  # the field, and its value (...: none)
    ("config.validation", 2**31 - 1),
    ("config.hidden", 10_000),
    ("config.layers", 100),
    ("config.wrong", 1),
    ("config.transform", "difference"),
    ("target", "x"),
    ("target", ...),
    ("transform.name", "x"),
    ("frequency.alias", "?"),
    ("frequency.step", True),
    ("ids.0", "KO"),
    ("ids.0", 7),
    ("ids", ["a"]),
    ("fitted_until.0", "now"),
    ("fitted_until.0", 5),
    ("fitted_until.0", "9999-12-31"),
    ("spacing.0", 0),
    ("report.mae", [1]),
    ("report.mae", ["x", 1, 1, 1, 1]),
    ("report.mae_relative_to_naive", ...),
    ("report.status", [1.0] * 5),
    ("provenance.mask", "x"),
    ("provenance.source", [1]),
    ("provenance.fitted_until", "soon"),
    ("skipped", None),
    ("skipped.A", 5),
]
CLASSICAL = [
    ("transform.alone", "theta"),
    ("transform.alone", None),
    ("config.model", "ces"),
    ("config.model", "lstm"),
    ("transform.natures.a.seasons", [2**31 - 2]),
    ("transform.natures.a.seasons", [*range(2, 60_000)]),
    ("transform.natures.a.spacing", 10.0),
    ("transform.natures.a.spacing", -1),
    ("transform.learned.common_seasons", [7] * 100_000),
    *(
        ("transform.natures.a.components.4", learned)
        for learned in (10**30, 1e308, -1e308, -1, True, None)
    ),
]


@pytest.mark.parametrize(
    ("which", "name", "value"),
    [*(("folder", *row) for row in WRONG), *(("classical", *row) for row in CLASSICAL)],
)
def test_a_field_that_is_wrong_is_named(which, name, value, request, tmp_path):
    run = shutil.copytree(request.getfixturevalue(which), tmp_path / "run")
    rest = holder = json.loads((run / JSON).read_text())
    *above, last = (int(part) if part.isdigit() else part for part in name.split("."))
    for part in above:
        holder = holder[part]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    (run / JSON).write_text(json.dumps(rest))
    with refuses(ModelError):
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
        (folder, {"params__constants": np.full((5, 3), np.nan, "f")}),
        (folder, {"params__constants": np.zeros((5, 4), "f")}),
        (folder, {"params__more": np.zeros((5, 3), "f")}),
        (small, {"kept__params__out__kernel": np.zeros((5, 3), np.uint8)}),
        (small, {"kept__params__out__kernel": np.zeros((5, 9), np.uint8)}),
    ]
    for number, (original, arrays) in enumerate(cases):
        run = rewritten(original, tmp_path / str(number), **arrays)
        with refuses(ModelError):
            fc.load(run)
    wild = rewritten(folder, tmp_path, params__out__bias=np.full((5, 6), 3e38, "f"))
    with refuses(ModelError):
        fc.predict(fc.load(wild), panel)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a pipe, which is not waited for": lambda run: pipe(run / JSON),
    "arrays that are a pipe": lambda run: pipe(run / ARRAYS),
    "larger than any model": lambda run: os.truncate(run / JSON, 1 << 40),  # takes no space
    "other bytes": lambda run: (run / ARRAYS).write_bytes(b"?" + (run / ARRAYS).read_bytes()[1:]),
    "less than the header says": lambda run: [
        (run / ARRAYS).write_bytes(struct.pack("<Q", 1 << 62) + (run / ARRAYS).read_bytes()[8:]),
        sign(run),
    ],
    "no arrays": lambda run: (run / ARRAYS).unlink(),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("damage", DAMAGES)
def test_files_that_are_damaged_are_named(damage, folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    DAMAGES[damage](run)
    with refuses(ModelError):
        fc.load(run)


def test_a_window_is_not_longer_than_the_histories(panel, tmp_path):
    """Nothing in the arrays of an LSTM bounds it; the rest of such a window would be padding."""
    resource = pytest.importorskip("resource")
    short = panel.until(panel.times[60])
    few = fc.Config(hidden=4, horizon=1, epochs=1, start="independent", members=1)
    folder = fc.save(fc.fit(short, few), tmp_path / "run")
    expected = fc.predict(fc.load(folder), short)
    rest = json.loads((folder / JSON).read_text())
    rest["config"] |= {"lookback": 10**30, "burn_in": 0}
    (folder / JSON).write_text(json.dumps(rest))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    got = fc.predict(fc.load(folder), short)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB
    assert len(got) == len(expected) and np.isfinite(got["LSTM"]).all()


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
        with refuses(ModelError):
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
