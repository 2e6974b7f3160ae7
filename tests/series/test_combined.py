"""The doubt about the combination of anchors, chosen from a panel's past."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from forecaster.series.combination.anchors import DOUBT, combine, errors_by_doubt
from forecaster.series.combination.combined import usual_growth, with_few_errors, with_usual_growth
from forecaster.series.combination.counts import count_forecasts, learn_counts
from forecaster.series.combination.nature import Nature
from forecaster.series.combination.sample import Sample, check_error_ratio, choose_doubt
from forecaster.series.features.transforms import Transform
from forecaster.series.panel.panel import Panel

SERIES, ROWS = 20, 300


def walks(seed: int = 3, series: int = SERIES) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(series, ROWS)).cumsum(1)


def noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(SERIES, ROWS))


def chosen(values: np.ndarray) -> float:
    return Sample(list(values), [Nature()] * len(values)).weights(4)[0]


@pytest.mark.parametrize("seed", range(4))
def test_of_random_walks_no_more_is_believed_than_by_default_and_of_noise_all(seed):
    assert chosen(walks(seed)) >= DOUBT
    assert chosen(noise(seed)) <= DOUBT


def test_where_it_is_sure_random_walks_stay_what_they_are():
    assert chosen(walks()) == 3.0


def test_a_few_series_say_too_little():
    assert chosen(walks(series=7)) == DOUBT
    still = np.ones((SERIES, ROWS))
    assert chosen(still) == DOUBT


def test_products_that_are_sold_no_more_say_nothing_about_the_others():
    dead = 10 + np.abs(noise(5)[:, :100])
    dead[:, 70:] = 0.0  # still for the later half of what is judged
    alive = noise()[:, :100]
    assert chosen(np.concatenate([alive, dead])) == chosen(alive) < DOUBT
    assert chosen(dead) == DOUBT


def test_a_few_large_errors_do_not_choose_the_doubt_for_all():
    errors = np.repeat([[0.9, 0.95, 0.97, 0.99]], SERIES, axis=0)
    errors[:, 0] += 0.01 * np.random.default_rng(0).normal(size=SERIES)
    errors[:2] = 9.0, 5.0, 3.0, 1.1
    assert choose_doubt(errors) == choose_doubt(errors[2:]) == 0.0


@pytest.mark.slow
def test_counts_choose_the_doubt_only_where_few_series_are_none():
    values = np.concatenate([noise(), walks()])
    natures = [Nature()] * SERIES + [Nature(counts=True)] * SERIES
    assert Sample(list(values), natures).weights(4)[0] == chosen(noise())
    assert Sample(list(walks()), natures[SERIES:]).weights(4)[0] == 3.0
    still = [*np.ones((8, ROWS)), *walks()]  # what never moves is no reason to leave counts out
    assert Sample(still, natures[SERIES - 8 :]).weights(4)[0] == 3.0


def test_more_doubt_draws_nearer_to_the_last_value():
    z = walks()[0]
    naive = z[:, None]
    certain, usual, doubtful = (combine(z, (), 4, doubt).base for doubt in (0.0, DOUBT, 3.0))
    assert (np.abs(doubtful - naive) <= np.abs(usual - naive)).all()
    assert (np.abs(usual - naive) <= np.abs(certain - naive)).all()
    assert (np.abs(usual - naive) < np.abs(certain - naive)).any()


def test_errors_are_those_of_the_combination():
    z = walks(5)[0]
    for doubt, error in zip((0.0, 1.0), errors_by_doubt(z, (), 2, (0.0, 1.0)), strict=True):
        base = combine(z, (), 2, doubt).base
        known = [
            abs(z[step] - made[step - ahead, ahead - 1])
            for made in (base,)
            for step in range(ROWS // 2, ROWS)
            for ahead in (1, 2)
        ]
        naive = [abs(z[s] - z[s - ahead]) for s in range(ROWS // 2, ROWS) for ahead in (1, 2)]
        assert error == pytest.approx(np.mean(known) / np.mean(naive))


def test_a_transform_keeps_what_it_learned():
    frame = pd.concat(
        pd.DataFrame({"unique_id": f"s{n}", "ds": np.arange(ROWS), "y": y})
        for n, y in enumerate(walks())
    )
    panel = Panel.from_frame(frame)
    before = Transform.choose("auto", panel)
    after = before.learned_from(panel, 4)
    assert before.doubt == DOUBT < after.doubt
    assert Transform.from_dict(after.to_dict()) == after
    newer = (
        "doubt",
        "shares",
        "common_seasons",
        "unit",
        "counts",
        "optimism",
        "growth",
        "error_ratio",
    )
    older = {name: value for name, value in after.to_dict().items() if name not in newer}
    assert Transform.from_dict(older) == before
    assert not np.array_equal(before.apply(panel, 4).base, after.apply(panel, 4).base)
    prices = dataclasses.replace(before, name="difference")
    assert prices.learned_from(panel, 4) is prices


@pytest.mark.slow
def test_the_ratio_of_errors_to_their_scale_is_that_of_the_later_half():
    """Of noise, whose scale is right: 1; of noise that becomes calm or restless, less or more."""
    random = np.random.default_rng(4)
    noise = random.normal(size=(20, 120))
    ratios: list[float] = []
    for later in (0.3, 1.0, 3.0):
        deviation = np.exp(np.linspace(0, np.log(later), 120))
        ratio = Sample(list(noise * deviation), [Nature()] * 20).learned(3, 1.0).error_ratio
        assert len(ratio) == 3
        ratios.append(float(np.mean(ratio)))
    assert ratios[1] == pytest.approx(1.0, abs=0.15)
    assert ratios[0] < ratios[1] - 0.1 and ratios[2] > ratios[1] + 0.1
    assert Sample(list(noise[:3]), [Nature()] * 3).learned(3, 1.0).error_ratio == ()


@pytest.mark.parametrize("ratio", [(1.0,), (1.0, 1.0, 0.0), (1.0, 1.0, float("nan")), (1, 1, 9)])
def test_a_damaged_ratio_of_errors_is_refused(ratio):
    with pytest.raises(ValueError, match="error_ratio: expected 3 ratios"):
        check_error_ratio(ratio, 3)


def test_the_growth_of_errors_with_the_horizon_is_learned_from_the_panel():
    """Errors of a random walk grow with the root of the steps; a short series cannot show it."""
    root = np.log(np.arange(1, 5)) / 2
    learned = Sample(list(walks()), [Nature()] * SERIES).learned(4, 1.0).growth
    np.testing.assert_allclose(learned, root, atol=0.05)
    short, level = np.full((6, 4), 2.0), np.exp(root)
    shrunk = with_usual_growth(short, root.tolist())
    np.testing.assert_allclose(shrunk[:, 0], 2.0)
    np.testing.assert_allclose(shrunk[0], 2.0 * level)  # no error is known: as in the panel
    assert (np.diff(shrunk[1:, -1]) <= 0).all() and 2.0 < shrunk[-1, -1] < 2.0 * level[-1]
    long = with_usual_growth(np.full((2000, 4), 2.0), root.tolist())
    np.testing.assert_allclose(long[-1], 2.0, rtol=0.01)
    assert with_usual_growth(short, ()) is short


def test_series_without_errors_count_little_in_the_usual_growth():
    scales = np.array([[1.0, 2.0], [1.0, 8.0], [np.nan, 1.0]])
    assert usual_growth(scales, np.array([1000, 2, 9])) == pytest.approx((0, np.log(2)), abs=1e-6)
    assert usual_growth(scales, np.array([2, 2, 9])) == pytest.approx((0, np.log(4)))
    assert usual_growth(scales[2:], np.array([9])) == ()


def test_the_usual_change_counts_for_less_with_each_row():
    own, usual = 1.0, 5.0
    scale, unit = np.full((1, 20, 1), own), np.full((1, 20, 1), usual)
    fading = with_few_errors(scale, unit, (0.0,))[0, :, 0]
    assert fading[0] == usual and (np.diff(fading[:12]) < 0).all()
    assert (fading[11:] == own).all()
    ending = with_few_errors(scale, unit, ())[0, :, 0]
    np.testing.assert_array_equal(ending[:4], fading[:4])
    assert (ending[4:] == own).all()


def test_two_values_that_differ_hardly_widen_bands():
    """The spread of one or two rows, and its growth, are those usual in the panel."""
    own, unit = np.full((1, 6, 3), 10.0), np.ones((1, 6, 1))
    growth = (0.0, 0.1, 0.2)
    made = with_few_errors(own, unit, growth)[0]
    expected = (100 + 2 * np.array([1.0, 2, 3]) + 6 * np.exp(2 * np.array(growth))) / 9
    np.testing.assert_allclose(made[1], np.sqrt(expected))
    weight = 2 * 7 / 8  # at the fifth row only the random walk counts
    at_fifth = (4 * 100 + weight * np.array([1.0, 2, 3])) / (4 + weight)
    np.testing.assert_allclose(made[4], np.sqrt(at_fifth))
    grown = (2 * np.array([1.0, 2, 3]) + 6 * np.exp(2 * np.array(growth))) / 8
    np.testing.assert_allclose(made[0], np.sqrt(grown))


def test_counts_do_not_say_how_others_change():
    growing = 100 * 1.1 ** np.arange(20.0)
    counted = np.array([0.0, 3] * 10)
    natures = [Nature(logarithmic=True), *[Nature(counts=True)] * 3]
    sample = Sample([growing, counted, counted, counted], natures)
    assert sample.usual_change() == pytest.approx(np.log(1.1))
    assert Sample([counted], [Nature(counts=True)]).usual_change() is None


def test_growth_of_a_damaged_model_is_refused():
    for growth in ((0.0, 0.1), (0.0, 0.1, float("nan")), (0.0, 0.1, 1e9)):
        with pytest.raises(ValueError, match="growth: expected 3 numbers"):
            Transform("combined", growth=growth).check_learned(3)
    Transform("combined", growth=(0.0, 0.1, 0.2)).check_learned(3)


def test_the_mean_of_counts_is_chosen_by_forecasts_made_in_the_later_half():
    """What a combination knows of the rows it was fitted to says nothing about later ones."""
    rows = [np.random.default_rng(seed).poisson(2.0, 16) * 1.0 for seed in range(60)]
    horizon = 8
    ahead = np.arange(16)[:, None] + np.arange(1, horizon + 1)
    combinations: list[np.ndarray] = []
    for z in rows:
        known = np.where(ahead < 16, z[np.minimum(ahead, 15)], z.mean())
        combinations.append(np.where(np.arange(16)[:, None] < 7, known, 4.0))
    prior = learn_counts(rows, combinations)
    assert prior.share == 0.0
    mean, _ = count_forecasts(rows[0], combinations[0], prior)
    assert mean[-1] == pytest.approx(2.0, abs=1.0)
