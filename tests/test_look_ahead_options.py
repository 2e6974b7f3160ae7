"""No option looks ahead: each has a case, and the list of options is made from the code."""

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from flax import nnx

import forecaster as fc
from forecaster import swarm
from forecaster.evaluation import BacktestOptions, evaluate_to_folder
from forecaster.evaluation.baselines import BASELINES
from forecaster.evaluation.evaluation import FORECASTS
from forecaster.forecasting import config as config_module
from forecaster.ingest import Groups, Membership
from forecaster.ingest.review.quality import WRONG, find_flags, flags_of
from tests.markets import SESSIONS, made_until, market

FIRST, CUTOFF = 134, 140  # positions of the first cutoff, and of the last before the edits
CONFIG = fc.Config(
    hidden=2, lookback=15, burn_in=5, horizon=2, validation=40, epochs=2, batch_size=8, members=1
)
OPTIONS = BacktestOptions(12, 3, ("ewma",))
NAMES = [f"s{row:02d}" for row in range(7)]
CHOICES: Mapping[str, tuple[str, ...]] = vars(config_module)["_CHOICES"]
VALUES: Mapping[str, Any] = {  # another value than in the other cases
    "hidden": 3, "layers": 2, "horizon": 3, "lookback": 18, "burn_in": 2, "validation": 30,
    "season": 5, "market": "s00", "premium": 0.5, "members": 2, "shrinkage": 1.0, "epochs": 3,
    "patience": 1, "batch_size": 4, "learning_rate": 1e-2, "weight_decay": 1e-2, "clip": 0.5,
    "data_parallel": 2,
}  # fmt: skip
MEMBERS = Membership(
    pd.DataFrame(
        {
            "unique_id": NAMES,
            "start": np.datetime64("2024-01-01"),
            "end": np.array([*[SESSIONS[160]] * 6, SESSIONS[FIRST + 3]], "datetime64[D]"),
        }
    )
)
OF_BACKTEST: Mapping[str, Any] = {
    "n_windows": 12, "step_size": 3, "refit": 4, "seed": 5, "membership": MEMBERS, "ends": "common",
    "torch_sample": 2,
    "groups": Groups(Path("groups.csv"), {name: name[-1] for name in (*NAMES, "new")}),
}  # fmt: skip
NO_CASE = {
    "config.common_volatility": "takes more and longer series (tests/forecasting/test_two_scales)",
    "panel.peers": "takes more and longer series (tests/forecasting/test_two_scales)",
    "options.baselines": "each baseline has its own case",
    "fit.panel": "each kind of data has its own case",
    "fit.config": "each setting has its own case",
    "fit.seed": "is options.seed",
    "fit.tune": "test_neither_does_a_search_nor_the_common_network_of_newcomers",
    "fit.checkpoint": "gives the same bits (tests/swarm/test_checkpoint.py)",
    "fit.executor": "gives the same bits (tests/distributed)",
    "fit.on_progress": "only looks on",
    "fit.columns": "only names the columns",
}
SEVERAL = {"config.market", "panel.static", "panel.future"}
QUICK = {"config.transform=combined", "panel.flags", "options.membership", "fit.network",
         "baseline.har", "several at once"}  # fmt: skip


class Own(nnx.Module):
    """A network of one's own, which sees the whole window."""

    def __init__(self, inputs, lookback, outputs, *, rngs):
        self.layer = nnx.Linear(inputs * lookback, outputs, rngs=rngs)

    def __call__(self, inputs, valid):
        return self.layer((inputs * valid[..., None]).reshape(inputs.shape[0], -1))


OWN = f"{__name__}:{Own.__name__}"


def options_of_the_code() -> list[str]:
    """Every option of a fit and of an evaluation, and every kind of data beside the values."""
    names: list[str] = []
    for field in dataclasses.fields(fc.Config):
        choices = CHOICES.get(field.name, ())
        names += [f"config.{field.name}={choice}" for choice in choices] or [f"config.{field.name}"]
    names += [f"options.{field.name}" for field in dataclasses.fields(BacktestOptions)]
    names += [f"panel.{name.removeprefix('with_')}" for name, _ in inspect.getmembers(fc.Panel)
              if name.startswith("with_")]  # fmt: skip
    names += [f"fit.{name}" for name in inspect.signature(fc.fit).parameters]
    return names + [f"baseline.{name}" for name in (*BASELINES, "torch")]


def settings_of(option: str) -> tuple[fc.Config, BacktestOptions]:
    """The settings of an option's case. Raises KeyError for an option that has none."""
    room, _, name = option.partition(".")
    if option == "several at once":
        return settings_of("config.market")
    if room == "config":
        name, _, choice = name.partition("=")
        return dataclasses.replace(CONFIG, **{name: choice or VALUES[name]}), OPTIONS
    if room == "options":
        more = {"baselines": ("torch",)} if name == "torch_sample" else {}
        return CONFIG, dataclasses.replace(OPTIONS, **{name: OF_BACKTEST[name]}, **more)
    if room == "panel":
        market = {"market": "s00", "indices": ("s00", "s02"), "static": None, "future": None,
                  "flags": None}[name]  # fmt: skip
        return dataclasses.replace(CONFIG, market=market), OPTIONS
    if room == "fit":
        return dataclasses.replace(CONFIG, model={"network": OWN}[name]), OPTIONS
    return CONFIG, dataclasses.replace(OPTIONS, baselines=(name,))


CASES = [option for option in options_of_the_code() if option not in NO_CASE]
CASES.append("several at once")


def has(option: str, one: str) -> bool:
    """Return whether a case is that of an option, or one of several."""
    return option == one or (option == "several at once" and one in SEVERAL)


def sees_ranges(option: str) -> bool:
    """Return whether an option is a baseline that sees the range of each session."""
    baseline = BASELINES.get(option.removeprefix("baseline."))
    return baseline is not None and baseline.ranges


def world(option: str, *, edited: bool, sessions: int = len(SESSIONS)) -> fc.Panel:
    """Prices with another future after the cutoff: in every way that they can be edited."""
    random = np.random.default_rng(7)
    frame = market([], len(NAMES), 1)._replace(
        observed=np.ones((len(NAMES), len(SESSIONS)), bool)
    ).frame()[["unique_id", "ds", "close"]]  # fmt: skip
    spans = np.exp(np.abs(np.random.default_rng(3).normal(0, 0.01, (2, len(frame)))))
    frame = frame.assign(up=spans[0], down=spans[1])[frame["ds"] <= SESSIONS[sessions - 1]]
    if edited:
        later, name = frame["ds"] > SESSIONS[CUTOFF], frame["unique_id"]
        noise = np.exp(random.normal(0, 0.1, len(frame)))
        frame["close"] = frame["close"].where(~later, frame["close"] * noise)
        frame.loc[later & (name == "s01"), "close"] = 0.0
        frame.loc[(frame["ds"] == SESSIONS[CUTOFF + 4]) & (name == "s02"), "close"] = -37.63
        gone = later & (name == "s03")  # it vanishes
        gone |= (frame["ds"] == SESSIONS[CUTOFF + 1]) & (name == "s04")
        new = frame[later & (name == "s05")].assign(unique_id="new")
        frame = pd.concat([frame[~gone], new])
    if option == "panel.flags":  # a jump, of which only a later row can tell that it is wrong
        jumped = (frame["unique_id"] == "s06") & (frame["ds"] >= SESSIONS[CUTOFF])
        jumped &= (frame["ds"] <= SESSIONS[CUTOFF]) if edited else jumped
        frame["close"] = frame["close"].where(~jumped, 5 * frame["close"])
    close, up, down = frame["close"], frame.pop("up"), frame.pop("down")
    if sees_ranges(option):
        frame = frame.assign(open=close * up / down, high=close * up, low=close / down)
    panel = fc.Panel.from_frame(frame)
    panel = panel.with_flags(flags_of(find_flags(panel), WRONG))
    every = [*NAMES, "new"]
    if has(option, "panel.static"):
        size = [*np.arange(7.0), 1e6]
        kinds = pd.DataFrame({"unique_id": every, "size": size, "kind": [*"aabbabb", "moon"]})
        panel = panel.with_static(kinds)
    if has(option, "panel.future"):
        days = pd.bdate_range(SESSIONS[0], periods=200)
        plans = np.random.default_rng(2).random((len(every), len(days)))
        marks = np.where(np.arange(len(days)) % 12 == 5, 1.0, 0.0)  # as of earnings
        if edited:  # what is beyond the last forecast
            far = days > SESSIONS[CUTOFF + 8]
            plans[:, far], marks[far] = 9.0, 2.0
        rows = [
            pd.DataFrame({"unique_id": name, "ds": days, "plan": plan, "mark": marks})
            for name, plan in zip(every, plans, strict=True)
        ]
        panel = panel.with_future(pd.concat(rows))
    return panel


def forecasts(
    folder: Path, option: str, *, edited: bool, sessions: int = len(SESSIONS), windows: int = 12
) -> pd.DataFrame:
    """All forecasts at cutoffs before the edits, by series, cutoff and step ahead."""
    settings, options = settings_of(option)
    options = dataclasses.replace(options, n_windows=windows)
    panel = world(option, edited=edited, sessions=sessions)
    name = f"{edited} {sessions}"
    made = evaluate_to_folder(folder / name, panel, settings, options)
    return made_until(pd.read_parquet(made.folder / FORECASTS), CUTOFF)


def test_every_option_has_a_case():
    """A new option fails here until it has one."""
    assert set(NO_CASE) | QUICK - {"several at once"} | SEVERAL < set(options_of_the_code())
    for option in CASES:
        settings_of(option)


@pytest.mark.filterwarnings("ignore:.*series")
@pytest.mark.parametrize(
    "option",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in CASES],
)
def test_no_option_looks_ahead(option, tmp_path):
    name = option.removeprefix("baseline.")
    if name in BASELINES and BASELINES[name].library:
        pytest.importorskip(BASELINES[name].library)
    if name == "torch" or option == "options.torch_sample":
        pytest.importorskip("torch")
    if option == "config.data_parallel":
        swarm.use_all_cores()
        if jax.local_device_count() < VALUES["data_parallel"]:
            pytest.skip("needs two devices")
    before = forecasts(tmp_path, option, edited=False)
    after = forecasts(tmp_path, option, edited=True)
    assert {"s00", "s01", "s02", "s04"} <= set(after.index.get_level_values("unique_id"))
    assert len(after) > 10 and set(after.index) <= set(before.index)
    pd.testing.assert_frame_equal(before.loc[after.index], after, check_exact=True)


@pytest.mark.filterwarnings("ignore:.*series")
def test_independent_networks_of_a_few_series_do_not_look_ahead():
    """The quick twin of the slow case ``config.start=independent``: no series helps another."""
    settings = dataclasses.replace(CONFIG, start="independent", epochs=1)
    before, after = (
        made_until(fc.cross_validation(panel, settings, 12, 3), CUTOFF)
        for panel in (world("", edited=edited).only(NAMES[:3]) for edited in (False, True))
    )
    assert len(after) > 10 and set(after.index) == set(before.index)
    pd.testing.assert_frame_equal(before.loc[after.index], after, check_exact=True)


@pytest.mark.filterwarnings("ignore:.*series")
def test_more_rows_move_forecasts_by_rounding_alone(tmp_path):
    """The number of rows and of cutoffs decides on the compiled program, and so on the last bit."""
    few = forecasts(tmp_path, "options.membership", edited=False, sessions=155, windows=7)
    many = forecasts(tmp_path, "options.membership", edited=False)
    assert set(few.index) == set(many.index)
    pd.testing.assert_frame_equal(few.sort_index(), many.loc[few.sort_index().index], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*series")
def test_neither_does_a_search_nor_the_common_network_of_newcomers():
    whole, other = (world("", edited=edited).until(SESSIONS[CUTOFF]) for edited in (False, True))
    for tune in (False, True):
        made = [fc.fit(panel, CONFIG, tune=tune) for panel in (whole, other)]
        models = [model.only(model.ids[:5]) for model in made] if not tune else made
        ours, theirs = (
            fc.predict(model, panel) for model, panel in zip(models, (whole, other), strict=True)
        )
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_the_case_of_flags_has_flags_that_the_edit_decides():
    found = []
    for edited in (False, True):
        flags = world("panel.flags", edited=edited).flags
        assert flags is not None
        own = flags[flags["unique_id"] == "s06"]
        columns = ["unique_id", "ds", "flag", "known", "until"]
        found.append({*own[columns].astype({"until": str}).itertuples(index=False, name=None)})
    before, after = found
    assert {row for row in before | after if row[3] <= SESSIONS[CUTOFF]} == before & after
    assert before & after and before != after
