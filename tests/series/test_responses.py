"""Series respond to what is known in advance: promotions, prices."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series.effects import NO_RESPONSES, History, learn_responses, responses_of

PROMOTION, PRICE = 0.4, -0.08  # in logarithms: of a promotion, and of a price that rises by 1


def simulated(count: int, rows: int, seed: int = 0) -> list[History]:
    """Logarithms with a level that wanders, a week, promotions, and prices around 10."""
    random = np.random.default_rng(seed)
    made: list[History] = []
    for number in range(count):
        numbers = np.column_stack([random.random(rows) < 0.15, 10 + random.normal(size=rows)])
        own = np.array([PROMOTION, PRICE]) * (0.5 + number / max(count - 1, 1))
        week = random.normal(size=7)[np.arange(rows) % 7]
        level = 0.03 * random.normal(size=rows).cumsum()
        z = level + week + 0.1 * random.normal(size=rows) + numbers @ own
        made.append(History(z, numbers, np.ones(rows, bool), 7, 1.0, counts=False))
    return made


def test_the_responses_that_made_a_panel_are_found():
    histories = simulated(20, 300)
    prior = learn_responses(histories)
    found = np.array([responses_of(prior, one) for one in histories])
    np.testing.assert_allclose(found.mean(0), [PROMOTION, PRICE], rtol=0.05)
    own = np.outer(np.linspace(0.5, 1.5, 20), [PROMOTION, PRICE])
    np.testing.assert_allclose(found[:, 0], own[:, 0], atol=0.1)
    assert np.corrcoef(found[:, 1], own[:, 1])[0, 1] > 0.9


def test_a_series_that_was_never_promoted_responds_as_the_others_do():
    histories = simulated(20, 300)
    prior = learn_responses(histories)
    one = histories[10]
    never = one._replace(numbers=one.numbers * [0, 1], values=one.values - one.numbers[:, 0] * 0.41)
    tiny = one._replace(values=one.values[:3], numbers=one.numbers[:3], there=one.there[:3])
    for new in (never, tiny):
        assert responses_of(prior, new)[0] == pytest.approx(PROMOTION, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_no_response(seed):
    random = np.random.default_rng(seed)
    for one_of in (lambda: random.random(200) < 0.1, lambda: random.normal(size=200).cumsum()):
        chance = [
            History(random.normal(size=200).cumsum(), np.column_stack([one_of(), one_of()]) * 1.0,
                    np.ones(200, bool), season=1, level=1.0, counts=False)
            for _ in range(20)
        ]  # fmt: skip
        found = np.array(learn_responses(chance).mean)
        assert np.abs(found).max(initial=0.0) < 0.1  # of the deviation of a day's change


@pytest.mark.parametrize("rows", [24, 60, 200])
def test_a_smooth_number_seems_not_to_explain_smooth_series(rows):
    """Both keep their direction for long, so that they go together by chance."""
    found = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        smooth = random.normal(size=(11, rows)).cumsum(1).cumsum(1)
        histories = [
            History(own, smooth[:1].T, np.ones(rows, bool), season=1, level=1.0, counts=False)
            for own in smooth[1:]
        ]
        found += len(learn_responses(histories).mean)
    assert found <= 2


def test_what_is_always_the_same_twice_there_or_without_change_breaks_nothing():
    histories = [
        one._replace(numbers=np.column_stack([one.numbers, one.numbers, np.full(300, 3.0)]))
        for one in simulated(9, 300)
    ]
    histories.append(histories[0]._replace(values=np.zeros(300)))
    prior = learn_responses(histories)
    found = np.array(responses_of(prior, histories[4]))
    assert found[0] + found[2] == pytest.approx(PROMOTION, rel=0.1)
    assert np.isfinite(found).all()
    assert learn_responses([histories[-1]]) == NO_RESPONSES


def sold(series: int, rows: int, mean: float, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sales by month with promotions of half as much again, and the plan one year on."""
    random = np.random.default_rng(seed)
    months = pd.date_range("2020-01-31", periods=rows + 6, freq="ME")
    sales, plans = [], []
    for number in range(series):
        promoted = (random.random(len(months)) < 0.25) * 1.0
        promoted[-6:] = [0, 1, 0, 1, 0, 1]
        y = mean * (1 + 0.5 * promoted) * np.exp(0.1 * random.normal(size=len(months)))
        y = random.poisson(y).astype(float) if mean < 10 else y
        keys = {"unique_id": f"s{number:02d}", "ds": months}
        sales.append(pd.DataFrame({**keys, "y": y}).iloc[:rows])
        plans.append(pd.DataFrame({**keys, "promotion": promoted}))
    return pd.concat(sales), pd.concat(plans)


@pytest.mark.parametrize("mean", [100, 3])
def test_short_series_and_counts_are_forecast_with_their_promotions(mean, tmp_path):
    sales, plans = sold(20, 24, mean)
    panel = fc.load_panel(sales).with_future(plans)
    model = fc.fit(panel, fc.Config(horizon=6))
    assert set(model.report["forecast_by"]) == {"combination"}
    fc.save(model, tmp_path / "model")
    forecast = fc.predict(fc.load(tmp_path / "model"), panel)
    ahead = forecast["LSTM"].to_numpy().reshape(20, 6).mean(0)
    assert ahead[1::2].mean() / ahead[::2].mean() == pytest.approx(1.5, abs=0.1)
    none = panel.with_future(plans.assign(promotion=plans["promotion"] * (plans["ds"] < "2022")))
    flat = fc.predict(model, none)["LSTM"].to_numpy().reshape(20, 6).mean(0)
    np.testing.assert_allclose(flat[1::2], ahead[::2], rtol=0.05)
