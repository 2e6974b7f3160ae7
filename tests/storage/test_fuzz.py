"""Any changed run of several shards: it forecasts, or is one clear error."""

import dataclasses
import hashlib
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.errors import ForecasterError, Kind, ModelError, Skipped
from forecaster.storage import METHODS, Run
from forecaster.storage.checking import widths_to_json
from forecaster.storage.run import write_index
from tests.limits import within_limits
from tests.messages import refuses
from tests.storage.mutants import JSON, change_json, mutate

INDEX = "index.parquet"


@pytest.fixture(scope="module")
def original(model, tmp_path_factory):
    """A run of two shards, one of them in bytes with half of it left out."""
    whole = tmp_path_factory.mktemp("runs") / "shards"
    (whole / "shards").mkdir(parents=True)
    rests = []
    for number, (ids, by) in enumerate(
        ((model.ids[:3], "none"), (model.ids[3:], "int8-pruned-50"))
    ):
        part = dataclasses.replace(model.only(list(ids)), skipped={})
        saved = fc.save(part, whole / "shards" / f"{number:04d}", METHODS[by])
        rests.append(json.loads((saved / JSON).read_text()))
    shared = {**widths_to_json(model.widths), "provenance": dict(model.provenance)}
    write_index(whole, rests, shared, {"ZZZ": Skipped(Kind.OTHER, detail="gone")})
    return whole


def sign_index(folder: Path) -> None:
    """Write the hash that the list of series has now."""
    rest = json.loads((folder / JSON).read_text())
    rest["index_sha256"] = hashlib.sha256((folder / INDEX).read_bytes()).hexdigest()
    (folder / JSON).write_text(json.dumps(rest))


def change_index(folder: Path, random: np.random.Generator) -> str:
    """Change a column of the list of series: gone, of another type, or with wild values."""
    frame = pd.read_parquet(folder / INDEX)
    column = str(random.choice(frame.columns))
    choices = [
        lambda: frame.drop(columns=column),
        lambda: frame.assign(**{column: "x"}),
        lambda: frame.assign(**{column: None}),
        lambda: frame.assign(**{column: -1}),
        lambda: frame.assign(**{column: 2**40}),
        lambda: frame.assign(**{column: 0.5}),
        lambda: frame.assign(**{column: np.nan}),
        lambda: frame.assign(**{column: frame[column].to_numpy()[::-1]}),
        lambda: frame.assign(**{column: [f"{n}\x1b[2J" for n in range(len(frame))]}),
        lambda: frame.assign(**{column: pd.Series([[1]] * len(frame))}),
        lambda: frame[:0],
        lambda: frame[:2],
        lambda: pd.concat([frame, frame]),
        lambda: frame.loc[np.repeat(frame.index, 500_000)],
    ]
    rare = random.random() < 0.02  # takes seconds
    choice = int(random.integers(len(choices) - 1)) if not rare else len(choices) - 1
    choices[choice]().to_parquet(folder / INDEX, index=False)
    sign_index(folder)
    return f"index {column} {choice}"


def change_bytes_of_index(folder: Path, random: np.random.Generator) -> str:
    """Write other bytes into the list of series, whose hash is then right."""
    raw = np.frombuffer((folder / INDEX).read_bytes(), np.uint8).copy()
    where = random.integers(len(raw), size=random.integers(1, 5))
    raw[where] = random.integers(256, size=len(where))
    (folder / INDEX).write_bytes(raw.tobytes())
    sign_index(folder)
    return f"{INDEX} at {where}"


def change(folder: Path, random: np.random.Generator) -> str:
    """Change the files of a run in one way or more."""
    which = random.random()
    if which < 0.2:
        return change_json(folder / JSON, random)
    if which < 0.4:
        return change_index(folder, random)
    if which < 0.6:
        return change_bytes_of_index(folder, random)
    part = folder / "shards" / f"{random.integers(2):04d}"
    if which < 0.9:
        return f"{part.name}: {mutate(part, random)}"
    shutil.rmtree(part)
    return f"{part.name} gone"


def forecasts_or_is_named(folder: Path, panel: fc.Panel) -> None:
    """Use a run; any error but ours passes through."""
    for use in (
        lambda: str(Run.read(folder)),
        lambda: fc.predict(Run.read(folder).model(Run.read(folder).ids[:1]), panel),
        lambda: fc.predict(fc.load(folder), panel),
    ):
        try:
            with warnings.catch_warnings(), within_limits():
                warnings.simplefilter("ignore")
                use()
        except ForecasterError as error:
            assert str(error).strip() and len(str(error)) < 2000


@settings(
    max_examples=120, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(seed=st.integers(0, 2**32 - 1))
def test_a_changed_run_forecasts_or_is_named(original, panel, tmp_path, unchecked, seed):
    """Within the limits, without an error but ours."""
    folder = shutil.copytree(original, tmp_path / "mutant")
    what = change(folder, np.random.default_rng(seed))
    try:
        forecasts_or_is_named(folder, panel)
    except Exception as error:
        raise AssertionError(f"{seed}, {what}: {error!r:.300}") from error
    finally:
        shutil.rmtree(folder)


# What the fuzz has found.
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda frame: frame.assign(mae_relative_to_naive="x"), "could not convert string"),
        (lambda frame: frame.assign(shard=0.5), "Cannot cast array data"),
        (lambda frame: frame.assign(shard=1 - frame["shard"].abs()), "no network in the shard"),
    ],
)
def test_a_list_of_series_that_is_wrong_is_named(original, tmp_path, edit, message):
    folder = shutil.copytree(original, tmp_path / "mutant")
    edit(pd.read_parquet(folder / INDEX)).to_parquet(folder / INDEX, index=False)
    sign_index(folder)
    with pytest.raises(ModelError, match=message):
        fc.load(folder)


def test_shards_of_two_fits_are_named(original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    path = folder / "shards" / "0001" / JSON
    rest = json.loads(path.read_text())
    rest["target"] = "close"
    path.write_text(json.dumps(rest))
    with refuses(ModelError):
        fc.load(folder)
