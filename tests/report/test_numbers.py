"""Tests of the numbers in figures, on small evaluations made by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.evaluation import evaluate
from forecaster.report import numbers, page
from tests.evaluation.handmade import SERIES, evaluation, of_counts, outcomes, scores_of

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]
DAYS = pd.bdate_range("2024-01-01", periods=40)


def forecasts(y: list[float], ahead: list[float] | None = None) -> pd.DataFrame:
    """Make forecasts of one series: first steps from ``y``, second steps from ``ahead``."""
    rows = [
        {"unique_id": "a", "ds": DAYS[day + h + 1], "cutoff": DAYS[day], "y": value,
         "LSTM": 0.0, "LSTM-lo-80": -1.0, "LSTM-hi-80": 1.0, "LSTM-lo-95": -2.0, "LSTM-hi-95": 2.0}
        for day, values in enumerate(zip(y, ahead, strict=True) if ahead else zip(y, strict=True))
        for h, value in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def pit(folder, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    made = evaluation(folder, scores_of(LSTM=OURS), forecasts=frame, levels=["80", "95"])
    edges, counts = numbers.pits(made)
    assert counts["LSTM"].index.tolist() == ["a"]
    return edges, counts["LSTM"].to_numpy()[0]


def test_the_pit_counts_outcomes_between_quantiles_over_all_horizons(tmp_path):
    y = [-3.0, -1.5, -1.5, -0.5, 0.5, 0.5, 1.5, 9.0]
    edges, counts = pit(tmp_path, forecasts(y))
    np.testing.assert_allclose(edges, [0, 0.025, 0.1, 0.5, 0.9, 0.975, 1])
    assert counts.tolist() == [1, 2, 1, 2, 1, 1]
    _, counts = pit(tmp_path, forecasts(y, [100.0] * len(y)))
    assert counts.tolist() == [1, 2, 1, 2, 1, 1 + len(y)]


def test_the_true_distribution_of_counts_has_a_flat_pit_and_exact_coverage(tmp_path):
    """All of one distribution, whose quantiles alone do not tell where its probabilities end."""
    random, n = np.random.default_rng(0), 20_000
    true = stats.nbinom(0.5, 0.5 / (0.5 + 0.6))
    y = true.rvs(n, random_state=random)
    low, lower, middle, upper, top = true.ppf([0.025, 0.1, 0.5, 0.9, 0.975])
    known = {"LSTM-below": true.cdf(y - 1), "LSTM-at-most": true.cdf(y)}
    frame = pd.DataFrame(
        {"unique_id": "a", "ds": np.arange(1, n + 1), "cutoff": np.arange(n), "y": y.astype(float),
         "LSTM": middle, "LSTM-lo-80": lower, "LSTM-hi-80": upper, "LSTM-lo-95": low,
         "LSTM-hi-95": top, **known}
    )  # fmt: skip
    edges, counts = pit(tmp_path, frame)
    share = np.diff(edges)
    error = np.sqrt((1 - share) / share / n)  # of a density
    assert (np.abs(numbers.density(edges, counts) - 1) < 4 * error).all()
    scores = evaluate(frame).iloc[0]
    for level in (80, 95):
        assert scores[f"coverage-{level}"] == pytest.approx(level / 100, abs=0.01)
    assert evaluate(frame)["model"].tolist() == ["LSTM"]
    quantiles_alone = evaluate(frame.drop(columns=list(known))).iloc[0]
    assert abs(quantiles_alone["coverage-80"] - 0.8) > 0.02  # as of an evaluation made before


def of_all_series(sizes: dict[str, float]) -> pd.DataFrame:
    rows = [
        {"unique_id": name, "ds": DAYS[day + 1], "cutoff": DAYS[day], "y": size * sign}
        for name, size in sizes.items()
        for day, sign in enumerate((1, -1))
    ]
    return pd.DataFrame(rows)


def test_relative_by_volatility_goes_from_the_calmest_to_the_wildest(tmp_path):
    sizes = dict(zip(SERIES, (10.0, 40.0, 20.0, 5.0), strict=True))
    scores = scores_of(LSTM=OURS, Naive=NAIVE)
    made = evaluation(tmp_path, scores, forecasts=of_all_series(sizes))
    assert numbers.volatility_share(made).to_dict() == {"a": 0.1, "b": 0.025, "c": 0.05, "d": 0.2}
    table = numbers.relative_by_volatility(made, "crps")
    assert table.index.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(table["LSTM"], [2 / 2.5, 3 / 3, 1 / 2, 4 / 2])  # b, c, a, d
    lonely = evaluation(tmp_path, scores, forecasts=of_all_series({"a": 1.0}))
    assert numbers.relative_by_volatility(lonely, "crps").empty


def test_models_have_an_order_and_colours_of_their_own(tmp_path):
    def made(*models, **changes):
        return evaluation(tmp_path, scores_of(LSTM=OURS), models=list(models), **changes)

    many = made("Drift", "EWMA", "GARCH", "LSTM", "Naive", "PyTorch", "ETS", torch_series=2)
    assert numbers.ordered(many) == ["LSTM", "PyTorch", "Naive", "GARCH", "EWMA", "Drift", "ETS"]
    assert list(numbers.slots(many).values()) == [1, 2, 3, 4, 5, 6, 7]
    few = numbers.slots(made("LSTM", "Naive", "Drift"))
    assert few == {"LSTM": 1, "Naive": 3, "Drift": 6}  # the same as beside other models
    assert numbers.sampled_torch(many)
    assert not numbers.sampled_torch(made("LSTM", "PyTorch", torch_series=4))


def grouped(folder):
    scores = scores_of(LSTM=OURS, Naive=NAIVE)
    scores = scores.assign(**{"coverage-80": [0.7, 0.8, 0.9, 1.0] * 2})
    return evaluation(folder, scores, groups={"a": "left", "b": "left", "d": "right"})


def test_groups_are_summarised_and_those_without_come_last(tmp_path):
    table = numbers.by_group(grouped(tmp_path))
    ours = table[table["model"] == "LSTM"].set_index("group")
    assert ours.index.tolist() == ["left", "right", "(no group)"]
    assert ours["series"].tolist() == [2, 1, 1]
    np.testing.assert_allclose(ours["crps"], [(1 / 2 + 2 / 2.5) / 2, 2, 1])
    np.testing.assert_allclose(ours["coverage-80"], [0.75, 1.0, 0.9])
    naive = table[table["model"] == "Naive"].set_index("group")
    assert naive["better"].tolist() == [1, 0, 0]
    np.testing.assert_allclose(naive["ratio"], ours["crps"])
    assert numbers.by_group(evaluation(tmp_path, scores_of(LSTM=OURS))).empty


def test_the_weighted_quantile_loss_is_of_all_series_together_and_not_of_prices(tmp_path):
    scores = scores_of(LSTM=OURS, Naive=NAIVE).assign(size=[10.0, 0.0, 5.0, 5.0] * 2)
    sales = evaluation(tmp_path, scores, target="y")
    ours, naive = numbers.side_by_side(sales).to_dict("records")
    assert ours["weighted quantile loss"] == pytest.approx(sum(OURS) / 20)
    assert naive["weighted quantile loss"] == pytest.approx(sum(NAIVE) / 20)
    prices = numbers.side_by_side(evaluation(tmp_path, scores))
    older = numbers.side_by_side(evaluation(tmp_path, scores.drop(columns="size"), target="y"))
    assert not {"weighted quantile loss"} & {*prices, *older}


@pytest.fixture
def sparse(tmp_path):
    return of_counts(tmp_path, groups={"a": "left", "b": "right", "c": "left", "d": "right"})


def test_of_counts_sums_over_all_series_are_shown(sparse):
    table = numbers.side_by_side(sparse).set_index("model")
    assert (table["series"] == 4).all()
    for name in ("CRPS", "errors"):
        column = table[f"sum of {name}, unchanged = 1"]
        assert column["LSTM"] == pytest.approx(11 / 18)
        assert column["SBA"] == pytest.approx(16.41 / 18)
    assert table["LSTM better"]["Naive"] == 0.5 and table["LSTM better"]["SBA"] == 1
    assert np.isnan(table["LSTM better"]["LSTM"])
    by_step = numbers.relative_by_horizon(sparse, "mae")
    assert by_step["LSTM"].tolist() == pytest.approx([11 / 18])


def test_a_score_on_fewer_series_than_another_says_on_how_many(tmp_path):
    scores = scores_of(LSTM=OURS, Naive=NAIVE)
    scores.loc[(scores["model"] == "Naive") & (scores["unique_id"] == "b"), "mae"] = 0
    table = numbers.side_by_side(evaluation(tmp_path, scores, outcomes(Naive=[1, 1, 0, 0])))
    assert table["series"].tolist() == [4, 4] and table["series, MAE"].tolist() == [3, 3]
    plain = evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE), outcomes(Naive=[1, 1, 0, 0]))
    assert "series, MAE" not in numbers.side_by_side(plain)


def test_the_page_says_on_which_series_numbers_rest_and_why_there_are_no_tests(sparse):
    cards = {card.label: card for card in page._cards(sparse)}
    card = cards["absolute error, summed over 4 series, “unchanged” = 1"]
    assert (card.number, card.note) == ("0.611", "better on 50% and equal on 50% of 4 series")
    shown = page._side_by_side(sparse)
    assert "sums over series and all horizons" in shown
    (where,) = (s for s in page._more_figures(sparse) if s.name == "where")
    assert "all series and steps where “unchanged” is not always right, smoothed" in where.html
    assert "it needs at least 20 cutoffs; there are 1" in shown
    tested = dataclasses.replace(sparse, summary=dataclasses.replace(sparse.summary, cutoffs=20))
    assert "No test" not in page._side_by_side(tested)
