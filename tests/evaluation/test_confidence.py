"""The model confidence set, on losses whose truth is known."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from forecaster.evaluation import confidence_set, verdict
from forecaster.evaluation.scores.confidence import p_values_of_set
from tests.evaluation.handmade import evaluation, outcomes, scores_of


def losses(cutoffs: int = 200) -> pd.DataFrame:
    """Two models as good as each other, one with the same losses as the first, and a worse one."""
    random = np.random.default_rng(0)
    common = random.gamma(2.0, size=cutoffs)
    one, other = common + 0.3 * random.normal(size=(2, cutoffs))
    worse = common + 0.2 + 0.3 * random.normal(size=cutoffs)
    return pd.DataFrame({"LSTM": one, "GARCH": other, "Naive": worse, "Twin": one})


def test_equal_models_stay_and_a_worse_one_goes():
    p = p_values_of_set(losses())
    assert p["LSTM"] > 0.05 and p["GARCH"] > 0.05 and p["Twin"] == p["LSTM"]
    assert p["Naive"] < 0.001 and p.max() == 1.0
    pd.testing.assert_series_equal(p, p_values_of_set(losses()))  # a fixed seed
    turned = p_values_of_set(losses().iloc[:, ::-1])
    pd.testing.assert_series_equal(turned[::-1], p)
    rounded = losses().assign(Twin=losses()["Twin"] * (1 + 3e-16))
    pd.testing.assert_series_equal(p_values_of_set(rounded), p)


@pytest.mark.parametrize(("cutoffs", "steps"), [(60, 1), (250, 1), (250, 21)])
def test_a_set_of_equal_models_holds_all_of_them_as_often_as_its_level_says(cutoffs, steps):
    """Of a hundred draws of four models, with the losses of forecasts that overlap."""
    random, kept = np.random.default_rng(1), 0
    for _ in range(100):
        shocks = random.normal(size=(cutoffs + steps, 5)).cumsum(0)
        sums = shocks[steps:] - shocks[:-steps]
        p = p_values_of_set(pd.DataFrame(sums[:, :4] + sums[:, 4:]), steps - 1)
        kept += (p > 0.05).all()
    assert kept >= 100 * (0.93 - 2 * np.sqrt(0.93 * 0.07 / 100))


def made(folder, **changes):
    """An evaluation of these losses; PyTorch has no score of one series."""
    known = [1.0, 1.0, 1.0, 1.0]
    scores = scores_of(LSTM=known, GARCH=known, Naive=known, PyTorch=[*known[:3], np.nan])
    days = losses().rename(columns={"Twin": "PyTorch"}).rename_axis("cutoff").reset_index()
    daily = days.melt("cutoff", var_name="model", value_name="crps")
    tests = outcomes(Naive=[1.0] * 4, GARCH=[1.0] * 4)
    return evaluation(folder, scores, tests, daily.assign(mae=daily["crps"]), **changes)


def test_an_evaluation_of_prices_says_which_models_are_kept(tmp_path):
    table = confidence_set(made(tmp_path)).set_index("model")
    assert table["kept"].to_dict() == {
        "LSTM": True, "GARCH": True, "Naive": False, "PyTorch": False,
    }  # fmt: skip
    assert table["p_value"].isna().to_list() == [False, False, False, True]
    said = "; the model confidence set (95 %) keeps LSTM, GARCH."
    assert verdict(made(tmp_path))[2].endswith(said)
    assert "confidence set" not in verdict(made(tmp_path, target="y"))[2]
    empty = dataclasses.replace(made(tmp_path), daily=made(tmp_path).daily[:0])
    assert "confidence set" not in verdict(empty)[2]
