"""A forecast is explained by the numbers that it was made of."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting import Explanation, prepared
from forecaster.forecasting.explaining import compared, factors_of
from forecaster.forecasting.explanation import Move
from forecaster.series import effect_name, show_time
from forecaster.series.calendar.rhythms import RHYTHMS
from forecaster.series.common_volatility import _GROUPS, OWN_TERMS, STATE_TERMS
from tests.test_goldens import goldens

COLUMNS = {"low": "LSTM-lo-80", "median": "LSTM", "high": "LSTM-hi-80"}


def fitted(name: str) -> tuple[fc.Model, fc.Panel]:
    case = goldens.CASES[name]
    panel = case.panel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fc.fit(panel, case.config), panel


@pytest.fixture(scope="module", params=goldens.CASES)
def known(request):
    return fitted(request.param)


@pytest.fixture(scope="module")
def prices():
    return fitted("prices pooled")


def check_adds_up(frame: pd.DataFrame, predicted: pd.DataFrame) -> None:
    """Factors multiply to the width that is predicted, terms add up to the median."""
    keys = ["unique_id", "step"]
    predicted = predicted.assign(step=predicted.groupby("unique_id").cumcount() + 1)
    predicted = predicted.set_index(keys).sort_index()
    made = {of: rows.set_index([*keys, "factor"])["value"] for of, rows in frame.groupby("of")}
    assert len(predicted) == frame[keys].drop_duplicates().shape[0]
    for name, column in COLUMNS.items():
        shown = made["forecast"].xs(name, level="factor").sort_index()
        np.testing.assert_allclose(shown, predicted[column], rtol=1e-9)
    relative = frame.groupby(keys)["relative"].first().sort_index().to_numpy()
    low, middle, high = (predicted[column].to_numpy(float) for column in COLUMNS.values())
    latest = made["forecast"].xs("latest", level="factor").sort_index().to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.where(relative, np.log(high / low), high - low)
        median = np.where(relative, np.log(middle / latest), middle)
    rest = {of: made[of].drop("total", level="factor") for of in ("band", "median")}
    whole = rest["band"].groupby(keys).prod().sort_index()
    unit = np.where(width > 0, width, 1.0)
    np.testing.assert_allclose(whole / unit, width / unit, atol=1e-9)
    summed = rest["median"].groupby(keys).sum().sort_index()
    np.testing.assert_allclose(summed, median, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_factors_and_terms_are_those_of_the_forecast(known):
    model, panel = known
    check_adds_up(factors_of(*prepared(model, panel)), fc.predict(model, panel, level=[80]))


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_components_have_weights_that_give_the_blend():
    model, panel = fitted("monthly without")
    frame = factors_of(*prepared(model, panel))
    parts = frame[frame["of"] == "component"]
    blend = (parts["value"] * parts["weight"]).groupby([parts["unique_id"], parts["step"]]).sum()
    terms = frame[
        (frame["of"] == "median") & frame["factor"].isin(["latest season", "trend and smoothing"])
    ]
    summed = terms.groupby(["unique_id", "step"])["value"].sum()
    np.testing.assert_allclose(blend, summed, rtol=1e-9)
    a_year = frame[(frame["factor"] == "a year before") & (frame["step"] == 1)]
    rows = panel.channel("y")[:, -12]
    np.testing.assert_allclose(a_year["value"], rows)


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_the_changes_add_up_and_what_did_not_change_has_no_share(prices):
    model, panel = prices
    made = fc.explain(model, panel, ["s01", "s02"], since=panel.times[-6])
    frame = made.frame[made.frame["of"].isin(["band", "median"])]
    whole = frame["factor"] == "total"
    keys = ["unique_id", "step", "of"]
    total = frame[whole].set_index(keys)["change"]
    summed = frame[~whole].groupby(keys)["change"].sum()
    np.testing.assert_allclose(summed, total.reindex(summed.index), atol=1e-12)
    shares = frame[~whole].groupby(keys)["share"].sum(min_count=1).dropna()
    np.testing.assert_allclose(shares, 1.0, rtol=1e-6)
    assert set(shares.index.get_level_values("of")) == {"band"}  # terms of medians cancel
    large = total[total.index.get_level_values("of") == "band"].abs() > 0.02
    assert set(total[large[large].index].index) <= set(shares.index)
    same = frame[frame["value"] == frame["then"]]
    assert len(same) and (same["share"].fillna(0) == 0).all()
    then = factors_of(*prepared(model, panel.until(panel.times[-6])))
    both = frame.merge(then, on=["unique_id", "step", "of", "factor"])
    np.testing.assert_array_equal(both["then"], both["value_y"])


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_a_new_fit_is_a_factor_of_its_own(prices):
    newer, panel = prices
    wider = newer.widths._replace(networks=2 * newer.widths.networks)
    older = dataclasses.replace(newer, widths=wider)
    made = fc.explain(newer, panel, "s01", since=panel.times[-2], older=older).of("s01")
    band = made[made["of"] == "band"].set_index("factor")
    assert (
        float(np.array(band.loc["new fit", "change"])) < -0.05
    )  # later errors have narrowed the older one, too
    before = fc.predict(older, panel.until(panel.times[-2]), level=[80])
    before = before[before["unique_id"] == "s01"].iloc[0]
    assert band.loc["total", "then"] == pytest.approx(
        np.log(before["LSTM-hi-80"] / before["LSTM-lo-80"]), rel=1e-9
    )
    parts = band.drop("total")
    assert parts["change"].sum() == pytest.approx(band.loc["total", "change"])
    assert parts["then"].prod() == pytest.approx(band.loc["total", "then"], rel=1e-9)


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_a_median_in_units_is_compared_with_the_earlier_one_of_the_same_day():
    model, panel = fitted("counts")
    made = fc.explain(model, panel, "s1")
    before = fc.predict(model, panel.until(panel.times[-2])).query("unique_id == 's1'")
    medians = made.frame.query("of == 'median' and factor == 'total'").set_index("ds")["then"]
    then = before.set_index("ds")["LSTM"].reindex(medians.index)
    assert then.notna().sum() == 2 and (medians[then.notna()] == then.dropna()).all()
    values = panel.channel("y")[panel.ids.index("s1")]
    said, none = made.sentence("s1"), int((values == 0).sum())
    assert said.startswith(
        f"s1: in {none} of the last {len(values)} days it was 0, otherwise 1 to "
    )
    chance = made.frame.query("factor == 'chance of any'").set_index("step")["value"]
    assert f"the chance of more than 0 is {100 * chance[1]:.0f} %; the 80 % band is " in said
    middle = made.frame.query("of == 'forecast' and factor == 'median'").set_index("step")["value"]
    assert ((middle > 0) == (chance > 0.5)).all()


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_the_weights_that_are_shown_add_up_to_all(known):
    """Also those of components that expect nothing, as some of counts do."""
    made = fc.explain(*known)
    for name in made.ids:
        shown = made.text(name).partition("\ncomponent ")[2].partition("\n\n")[0].splitlines()
        weights = [float(line[36:-1]) for line in shown[1:] if line.endswith(" %")]
        assert not shown or sum(weights) == pytest.approx(100, abs=len(weights) / 2)


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_a_past_date_is_explained_as_it_was_known(prices):
    """Whatever came later changes no bit of it."""
    model, panel = prices
    at = panel.times[-9]
    later = panel.times > at
    values = panel.values.copy()
    values[:, later] *= 1.3
    edited = dataclasses.replace(panel, values=values)
    made = [fc.explain(model, some, at=at).frame for some in (panel, edited, panel.until(at))]
    for other in made[1:]:
        pd.testing.assert_frame_equal(made[0], other, check_exact=True)
    check_adds_up(made[0], fc.predict(model, panel.until(at), level=[80]))


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_the_sentence_says_by_how_much_a_price_has_fallen(prices):
    model, panel = prices
    row, values = panel.ids.index("s03"), panel.values.copy()
    usual = np.median(np.abs(np.diff(np.log(values[row, :, 3]))[-252:]))
    open_, high, low, close = range(4)
    values[row, -1, close] = values[row, -2, close] * np.exp(-8 * usual)
    values[row, -1, open_] = values[row, -2, close]
    values[row, -1, high] = values[row, -1, open_]
    values[row, -1, low] = values[row, -1, close]
    made = fc.explain(model, dataclasses.replace(panel, values=values), "s03")
    said = made.sentence("s03")
    assert " than on " in said and "after a fall of" in said
    assert " times its usual move)" in said
    assert said in made.text("s03") and "EWMA" in made.text("s03") and "GARCH" in made.text("s03")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_factors_are_those_of_forecasts_of_500_random_dates():
    random = np.random.default_rng(1)
    for name, count in {"prices pooled": 200, "daily with networks": 150, "counts": 150}.items():
        model, panel = fitted(name)
        for row in random.integers(len(panel.times) // 2, len(panel.times), count):
            known = panel.until(panel.times[row])
            known = known.only(np.array(known.ids)[known.mask.any(1)].tolist())
            check_adds_up(factors_of(*prepared(model, known)), fc.predict(model, known, level=[80]))


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_over_a_month_the_largest_move_is_named_beside_the_net_one(prices):
    model, panel = prices
    row, values = panel.ids.index("s03"), panel.values.copy()
    values[row, -9:] *= 0.84
    fallen = dataclasses.replace(panel, values=values)
    said = fc.explain(model, fallen, "s03", since=panel.times[-22]).sentence("s03")
    close = values[row, :, 3]
    net, day = close[-1] / close[-22] - 1, show_time(panel.times[-9])
    assert f"after a {'fall' if net < 0 else 'rise'} of {100 * abs(net):.1f} % net" in said
    assert f"(its largest move a fall of {100 * (1 - close[-9] / close[-10]):.1f} %, {day})" in said


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_each_step_of_a_series_in_units_is_compared(known):
    model, panel = known
    made = fc.explain(model, panel, panel.ids[0])
    for step in range(1, model.config.horizon + 1):
        assert f"on {made.since}" in made.sentence(panel.ids[0], step)


@pytest.mark.parametrize(
    ("day", "name"),
    [("2024-12-25", "25 December"), ("2024-03-29", "Good Friday"), ("2024-11-28", "Thanksgiving"),
     ("2024-06-30", "the day of the month"), ("2024-08-20", "the time of year")],
)  # fmt: skip
def test_the_effect_of_a_day_has_a_name(day, name):
    sizes = RHYTHMS["D"].sizes
    effects = np.repeat([9.0, 3.0, 1.0], [*sizes.values()]).tolist()
    assert effect_name(effects, np.datetime64(day), "D") == name


def test_a_term_that_is_unusual_is_named_though_it_did_not_change():
    rows = [
        ("band", "total", 4.0, 4.0, 0.0), ("band", "networks", 4.0, 4.0, 0.0),
        ("median", "total", 14.0, 34.0, 0.0), ("median", "latest season", 34.0, 20.0, 0.0),
        ("median", "calendar", -20.0, 0.5, 0.0), ("forecast", "median", 14.0, 34.0, 0.0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["of", "factor", "value", "usual", "change"])
    names = {"unique_id": "NN5", "step": 1, "relative": False, "percentile": 50.0, "effect": ""}
    frame = frame.assign(**names, cutoff=pd.Timestamp("1997-12-24"))
    frame.loc[frame["factor"] == "calendar", "effect"] = "25 December"
    said = Explanation(frame, since="1997-12-23").sentence("NN5")
    assert "with -20 through the calendar's effect of 25 December (usually +0.5)" in said
    assert "the 80 % band is 4 wide, as before: it has no row after 1997-12-24. It" in said
    frame["change"] = frame["change"].mask(frame["factor"].isin(["calendar", "total"]), -20)
    moved = Explanation(frame, since="1997-12-23").sentence("NN5")
    assert ", -20 through the calendar's effect of 25 December" in moved
    usual = frame.assign(usual=frame["value"])
    assert "usually" not in Explanation(usual, since="1997-12-23").sentence("NN5")


@pytest.mark.parametrize(
    ("by", "net", "said"),
    [(0.1, -0.03, "wider through recent falls"), (0.1, 0.014, "wider through earlier rises that"),
     (-0.1, 0.03, "narrower through recent rises"), (-0.1, -0.01, "narrower through earlier falls"),
     (-0.1, 0.0, "narrower through earlier falls that fade")],
)  # fmt: skip
def test_falls_are_named_where_something_fell(by, net, said):
    names = {"of": "band", "unique_id": "KO", "step": 1, "relative": True, "usual": np.nan}
    frame = pd.DataFrame({"factor": ["falls", "total"], "value": 0.03, "change": by}).assign(
        **names
    )
    moves = {"KO": Move(net, 1.0, net, "2024-06-10")} if net else {}
    assert said in Explanation(frame, moves=moves, since="2024-06-07").sentence("KO")


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_volatility_a_year_depends_on_no_level(prices):
    model, panel = prices
    made = [fc.explain(model, panel, "s01", level=level).beside for level in (50, 80, 95)]
    for one in made:
        assert one is not None and made[0] is not None
        pd.testing.assert_series_equal(one["a_year"], made[0]["a_year"], rtol=1e-9)
        assert (one.dropna().shape[0] == 4) and (one["width"] >= made[0]["width"]).all()


@pytest.mark.filterwarnings("ignore::forecaster.errors.ForecasterWarning")
def test_a_constant_has_no_rank(prices):
    premium = fc.explain(*prices).frame.query("factor == 'premium'")
    assert len(premium) and (premium["percentile"] == 50).all()


def test_what_is_over_is_shown():
    """A term that is nothing now and usually, but was not then; and a band that shrank to none."""
    names = {"of": ["band", "band", "median", "median", "median"]}
    frame = pd.DataFrame(names).assign(
        unique_id="part", step=1, cutoff=33, ds=34, relative=False, weight=np.nan, effect="",
        factor=["level", "total", "latest season", "trend and smoothing", "total"],
        value=[0.0, 0.0, 0.0, 1.0, 1.0], usual=[0.0, 0.0, 0.0, 1.0, 1.0], percentile=50.0,
    )  # fmt: skip
    made = {"latest": 1.0, "median": 1.0, "low": 1.0, "high": 1.0}
    of = [frame.iloc[[0]].assign(of="forecast", factor=one, value=by) for one, by in made.items()]
    frame = pd.concat([frame, *of], ignore_index=True)
    then = frame.assign(value=frame["value"].mask(frame["factor"] == "latest season", 1.0))
    then.loc[then["of"] == "band", "value"] = 1.0
    said = Explanation(compared(frame, then), since="32").text("part")
    assert "latest season" in said and "(1 wide on 32)" in said


def test_each_term_of_the_common_model_belongs_to_a_factor():
    assert len(_GROUPS) == len(OWN_TERMS) + len(STATE_TERMS)
