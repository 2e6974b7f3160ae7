"""Tests of settings: their defaults, and errors that name the setting."""

import dataclasses
import inspect
import os
import re
from pathlib import Path

import pytest

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.forecasting.config import read_settings
from tests.messages import refuses


def test_defaults_that_depend_on_others_are_resolved_once():
    assert fc.Config().burn_in == 20 and fc.Config(lookback=30).burn_in == 10
    assert fc.Config().training_mode == "sequence"
    for model in ("mlp",):
        assert fc.Config(model=model).training_mode == "windowed"
    for model in ("lstm", "gru", "transformer"):
        assert fc.Config(model=model).training_mode == "sequence"
    assert fc.Config(training="windowed", burn_in=60).training_mode == "windowed"
    assert dataclasses.asdict(fc.Config(clip=1))["clip"] == 1.0


def test_what_is_said_of_epochs_and_patience_holds_for_every_stage():
    stages = ("independent", "pooled", "from pooled")
    assert [fc.Config().limits(stage) for stage in stages] == [(100, 15), (100, 5), (6, 2)]
    given = fc.Config(epochs=40, patience=25)
    assert [given.limits(stage) for stage in stages] == 3 * [(40, 25)]


def test_fine_tuning_takes_a_third_of_the_learning_rate_and_decays_towards_the_start():
    config = fc.Config(learning_rate=3.0, weight_decay=0.5, shrinkage=7.0, clip=2.0)
    given = {"learning_rate": 3.0, "weight_decay": 0.5, "clip": 2.0}
    assert config.hyperparams("independent") == config.hyperparams("pooled") == given
    fine = {"learning_rate": 3.0 / 3, "weight_decay": 7.0, "clip": 2.0}
    assert config.hyperparams("from pooled") == fine


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "tcn"},
        {"lookback": "60"},
        {"burn_in": -1},
        {"burn_in": 60},
        {"season": []},
        {"clip": 0.0},
        {"validation": 13},
        {"model": "mlp", "training": "sequence"},
        {"precision": "half"},
        {"model": "mlp", "precision": "bfloat16"},
        {"model": "a.b:C", "precision": "bfloat16"},
        {"market": 3},
        {"market": ["SPY", 3]},
        {"market": ["SPY", "SPY"]},
        {"market": "SPY", "transform": "combined"},
        {"premium": 5},
        {"common_volatility": 1},
        {"premium": float("nan")},
        {"data_parallel": 2, "start": "independent"},
        {"horizon": 10_001},
        {"hidden": 10**5000},
        {"season": [7] * 11},
        {"lookback": "6" * 1000},
        {"size": 3},
    ],
)
def test_errors_name_the_setting(settings):
    with refuses(UsageError) as caught:
        fc.Config.from_dict(settings, "fast.toml")
    assert next(iter(settings)) in str(caught.value)


def test_settings_are_read_from_toml_with_a_mark_and_comments(tmp_path):
    path = tmp_path / "fast.toml"
    path.write_bytes(b"\xef\xbb\xbf# " + b"." * 200 + b"\nhidden = 4\n")
    assert read_settings(path) == {"hidden": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden =", ""),
        ("hidden = " + "[" * 100_000, "recursion"),
        ("hidden = " + "9" * 10_000, "Exceeds the limit"),
        ("# " + "a" * 2**20, "1,048,578 bytes; expected 1,048,576 at most"),
    ],
)
def test_hostile_toml_is_one_error_at_once(tmp_path, text, message):
    path = tmp_path / "fast.toml"
    path.write_text(text)
    with refuses(UsageError):
        read_settings(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_settings_that_may_never_end_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with refuses(UsageError):
            read_settings(path)


def test_the_help_of_a_config_describes_every_setting():
    help_of = inspect.getdoc(fc.Config) or ""
    for field in dataclasses.fields(fc.Config):
        line = re.search(rf"^- ``{field.name}``: (.+)", help_of, re.MULTILINE)
        assert line and len(line[1]) > 5, field.name
