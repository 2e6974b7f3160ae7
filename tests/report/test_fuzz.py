"""A damaged or hostile evaluation folder: a report, or one clear error."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forecaster.errors import DataError, ForecasterError
from forecaster.evaluation import Evaluation, caveats, verdict
from forecaster.report import build_report
from tests.conftest import error
from tests.limits import within_limits
from tests.report.synthetic import synthetic
from tests.slow import SHARE, rest_slow
from tests.storage.mutants import change_json

TABLES = ["scores", "tests", "daily", "forecasts"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The files of a small evaluation, with groups and skipped series."""
    folder = tmp_path_factory.mktemp("evaluation")
    skipped = {"ZZZ": {"kind": "other", "detail": "too short", "reason": "too short"}}
    made = synthetic(
        folder, 3, 30, 2, groups={"S000": "left", "S001": "right"}, skipped=skipped,
        failed={"garch": {"a": "no convergence"}},
    )  # fmt: skip
    made.write()
    return folder


def change_table(folder, random: np.random.Generator) -> str:
    """Change a column of a table: gone, of another type, or with wild values."""
    name = str(random.choice(TABLES))
    frame = pd.read_parquet(folder / f"{name}.parquet")
    column = str(random.choice(frame.columns))
    count = len(frame)
    choices = [
        lambda: frame.drop(columns=column),
        lambda: frame.assign(**{column: "x"}),
        lambda: frame.assign(**{column: np.nan}),
        lambda: frame.assign(**{column: None}),
        lambda: frame.assign(**{column: np.inf}),
        lambda: frame.assign(**{column: -7}),
        lambda: frame.assign(**{column: 2**62}),
        lambda: frame.assign(**{column: 1e308}),
        lambda: frame.assign(**{column: pd.Timestamp("2262-01-01")}),
        lambda: frame.assign(**{column: [f"\x1b[2J<script>{n}" for n in range(count)]}),
        lambda: frame.assign(**{column: frame[column].to_numpy()[random.permutation(count)]}),
        lambda: frame[:0],
        lambda: frame[: count // 2],
        lambda: frame.sample(frac=1, random_state=1),
        lambda: pd.concat([frame, frame]),
        lambda: frame.rename(columns={column: f"{column}-80"}),
    ]
    choice = int(random.integers(len(choices)))
    choices[choice]().to_parquet(folder / f"{name}.parquet", index=False)
    return f"{name} {column} {choice}"


def change_bytes(folder, random: np.random.Generator) -> str:
    """Change bytes of a file, cut it, or remove it."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    path = files[random.integers(len(files))]
    raw = bytearray(path.read_bytes())
    if (choice := random.random()) < 0.5:
        for at in random.integers(len(raw), size=random.integers(1, 5)):
            raw[at] = random.integers(256)
        path.write_bytes(raw)
    elif choice < 0.9:
        path.write_bytes(raw[: random.integers(len(raw))])
    else:
        path.unlink()
    return f"{path.name} {choice:.2f}"


def change(folder, random: np.random.Generator) -> str:
    """Change the folder in one way."""
    which = random.random()
    if which < 0.5:
        return change_json(folder / "summary.json", random)
    return (change_table if which < 0.85 else change_bytes)(folder, random)


def reports_or_is_named(folder) -> bool:
    """Whether a page could be made; any error but ours passes through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluation = Evaluation.read(folder)
            build_report(evaluation, folder / "report.html")
            assert all(map(str, (*verdict(evaluation), *caveats(evaluation))))
    except ForecasterError as error:
        assert str(error).strip() and len(str(error)) < 2000
        return False
    return True


def check(original, folder, seed: int) -> None:
    """Copy an evaluation, change it, and report on it: within the limits, no error but ours."""
    shutil.copytree(original, folder)
    what = change(folder, np.random.default_rng(seed))
    try:
        with within_limits():
            reports_or_is_named(folder)
    except Exception as error:
        raise AssertionError(f"mutant {seed}, {what}: {error!r:.300}") from error
    finally:
        shutil.rmtree(folder)


quick = settings(
    max_examples=10, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.slow
@quick
@given(seed=seeds)
def test_a_mutant_is_reported_or_named(original, tmp_path, seed):
    check(original, tmp_path / "mutant", seed)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)  # half a second for each, on one core
@settings(quick, max_examples=8_000 // SHARE, derandomize=False)
@given(seed=seeds)
def test_a_mutant_is_reported_or_named_for_long(original, tmp_path, seed):
    check(original, tmp_path / "mutant", seed)


# What the fuzz has found.
@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("daily", lambda f: f.assign(model="Naive"), "daily: more than one row of the same cutoff"),
        ("daily", lambda f: f.drop(columns="model"), "daily: no column 'model'"),
        ("daily", lambda f: f.assign(crps="x"), "daily: column 'crps': expected numbers; got"),
        ("daily", lambda f: f[f["model"] == "LSTM"], "daily: model: no rows of Naive"),
        ("tests", lambda f: f.assign(unique_id=7), "tests: column 'unique_id': expected text; got"),
        ("tests", lambda f: f.assign(test=None), "tests: column 'test'"),
        ("tests", lambda f: f.drop(columns="p_value"), "tests: no column 'p_value'"),
        ("tests", lambda f: f.drop(columns="degrees"), "no column 'degrees'. Run `forecaster eval"),
        ("scores", lambda f: f[f["model"] != "Naive"], "scores: model 'Naive': 0 rows; expected 6"),
        ("scores", lambda f: f.assign(horizon=0.5), "scores: column 'horizon': expected whole"),
        ("scores", lambda f: f.assign(model="x"), "scores: more than one row of the same"),
        ("scores", lambda f: f[:0], "scores"),
        ("forecasts", lambda f: f[:0], r"forecasts\.parquet: .*no rows"),
        ("forecasts", lambda f: f.assign(LSTM="x"), "column 'LSTM': expected numbers; got"),
        ("forecasts", lambda f: f.assign(LSTM=np.inf), "column 'LSTM': an infinite number"),
        ("forecasts", lambda f: f.drop(columns="y"), "column .y.: .* no such column"),
        ("forecasts", lambda f: f.assign(cutoff=-7), "'cutoff': expected times like those of 'ds'"),
        ("forecasts", lambda f: f.replace({"S002": "X"}), "X: forecasts of a series without scor"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_named(table, change, message, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    change(pd.read_parquet(folder / f"{table}.parquet")).to_parquet(
        folder / f"{table}.parquet", index=False
    )
    with pytest.raises(DataError, match=message):
        build_report(Evaluation.read(folder), folder / "report.html")


@pytest.mark.parametrize("note", [b"index_columns", b"pandas_type"])
@pytest.mark.parametrize("name", rest_slow(["forecasts", "daily", "scores", "tests"]))
def test_what_pandas_noted_of_a_table_may_be_damaged(name, note, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    path = folder / f"{name}.parquet"
    table = pq.read_table(path)
    frame = table.to_pandas(ignore_metadata=True)
    noted = pa.Schema.from_pandas(frame, preserve_index=False).metadata[b"pandas"]
    noted = noted.replace(note, b"x" + note[1:])
    pq.write_table(table.replace_schema_metadata({b"pandas": noted}), path)
    build_report(Evaluation.read(folder), folder / "report.html")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"model": "LSTM"}', "[" * 100_000, r'{"model": "\ud800"}', '{"a": NaN}']
)
def test_the_command_names_a_summary_that_is_none(text, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    (folder / "summary.json").write_text(text)
    said = error("report", folder, code=1)
    assert "the evaluation cannot be read: summary.json is not a summary: " in said


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("horizon", 10**9, r"scores up to \d steps ahead, but forecasts of 1000000000"),
        ("models", ["LSTM", "Naive", "<b>"], "scores: model '<b>': is only in the scores or in"),
    ],
)
def test_a_summary_of_other_scores_is_named(entry, value, message, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    summary = json.loads((folder / "summary.json").read_text())
    value = [*summary["models"], "<b>"] if entry == "models" else value
    (folder / "summary.json").write_text(json.dumps(summary | {entry: value}))
    with pytest.raises(DataError, match=message):
        build_report(Evaluation.read(folder))
