"""Other prices to learn the common volatility from, which are not forecast."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.files import Home
from forecaster.storage import FitRequest, digest_of
from tests.common_market import frame, index
from tests.conftest import run

SMALL: dict[str, Any] = {
    "hidden": 2, "lookback": 20, "burn_in": 5, "horizon": 2, "validation": 60, "epochs": 2,
    "members": 1, "patience": 2,
}  # fmt: skip
CONFIG = fc.Config(**SMALL)
ROWS = 400  # too few for a model of their own


def renamed(prices: pd.DataFrame) -> pd.DataFrame:
    return prices.assign(ticker="X" + prices["ticker"])


@pytest.fixture(scope="module")
def prices() -> pd.DataFrame:
    return frame(12, 520).groupby("ticker").tail(ROWS)


@pytest.fixture(scope="module")
def others() -> pd.DataFrame:
    return renamed(frame(15, 520, seed=3))


@pytest.fixture(scope="module")
def market(prices) -> fc.Panel:
    return fc.load_panel(prices)


@pytest.fixture(scope="module")
def fitted(market, others) -> fc.Model:
    return fc.fit(market.with_auxiliary(fc.load_panel(others)), CONFIG)


def weights_of(model: fc.Model) -> tuple[tuple[float, ...], ...]:
    weights = model.common_weights
    assert weights is not None
    return weights.weights


def test_they_help_where_own_rows_are_too_few(market, fitted):
    assert fc.fit(market, CONFIG).common_weights is None
    assert fitted.ids == market.ids
    common = fitted.transform.learned.common_volatility
    assert common is not None and common.peers == market.ids


def test_no_day_that_is_held_back_is_learned_from(market, others, fitted):
    """The last 60 rows of the others may be anything."""
    other = fc.load_panel(others)
    held_back = market.times[-CONFIG.longest_validation]
    for first, same in ((held_back, True), (other.times[400], False)):
        values = other.values.copy()
        late = other.times >= first
        noise = np.random.default_rng(2).uniform(0.5, 2, values[:, late].shape)
        values[:, late] *= noise
        changed = dataclasses.replace(other, values=values)
        again = fc.fit(market.with_auxiliary(changed), CONFIG)
        assert (weights_of(again) == weights_of(fitted)) is same


def test_no_forecast_of_the_past_sees_their_later_rows(market, others):
    other = fc.load_panel(others)
    values = other.values.copy()
    values[:, -CONFIG.horizon - 1 :] *= 1.5
    changed = dataclasses.replace(other, values=values)
    first, second = (
        fc.cross_validation(market.with_auxiliary(one), CONFIG, n_windows=2)
        for one in (other, changed)
    )
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_a_later_fit_reuses_the_weights(market, fitted):
    known = fitted.common_weights
    assert known is not None and known.until == market.times[-1]
    assert fitted.only(["S03"]).common_weights == known
    config = dataclasses.replace(CONFIG, horizon=1)
    again = fc.fit(market.with_auxiliary(known), config)
    assert weights_of(again) == weights_of(fitted)[:1]


def test_weights_that_have_seen_later_days_are_refused(market, fitted):
    earlier = market.until(market.times[-2]).with_auxiliary(fitted.common_weights)
    with pytest.raises(UsageError, match=r"saw rows until.*has seen what is to be forecast"):
        fc.fit(earlier, CONFIG)
    with pytest.raises(UsageError, match="has seen what is to be forecast"):
        fc.cross_validation(market.with_auxiliary(fitted.common_weights), CONFIG)


def test_a_series_that_ended_early_does_not_hide_what_the_weights_have_seen(prices, others, market):
    """Not even where it is the first of the run, or alone."""
    ended = prices[(prices["ticker"] != "S00") | (prices["date"] < "2016-09-01")]
    panel = fc.load_panel(ended).with_auxiliary(fc.load_panel(others))
    weights = fc.fit(panel, CONFIG).only(["S00"]).common_weights
    assert weights is not None and weights.until == market.times[-1]


def test_weights_of_another_frequency_are_refused(market, fitted):
    weekly = market.to_frame().groupby("unique_id").nth(list(range(0, ROWS, 5)))
    with pytest.raises(UsageError, match="expected the frequency of these series, weeks; got week"):
        fc.load_panel(weekly).with_auxiliary(fitted.common_weights)


def test_a_row_counts_as_wrong_only_if_that_was_known_before_the_held_back_days(
    market, others, tmp_path
):
    """A jump on the last day before them either reverses on the next day or stays."""
    models = []
    day = pd.Timestamp(market.times[-CONFIG.longest_validation]) - pd.offsets.BDay()
    for name, last in (("reverses", day), ("stays", pd.Timestamp("2099-01-01"))):
        jumped = (others["ticker"] == "XS03") & others["date"].between(day, last)
        changed = others.copy()
        changed.loc[jumped, ["open", "high", "low", "close"]] *= 3
        changed.to_csv(tmp_path / f"{name}.csv", index=False)
        other = fc.load_panel(f"files:{tmp_path / name}.csv")
        assert other.flagged().any() == (name == "reverses")
        models.append(fc.fit(market.with_auxiliary(other), CONFIG))
    assert weights_of(models[0]) == weights_of(models[1])


def test_series_too_short_to_choose_by_are_refused(prices, others):
    short = fc.load_panel(prices.groupby("ticker").tail(58))
    config = dataclasses.replace(CONFIG, validation=11, horizon=1, lookback=10, burn_in=2)
    with pytest.raises(
        UsageError, match=r"learn-from: expected 2,000 rows .* after its first 60 .* and 0\."
    ):
        fc.fit(short.with_auxiliary(fc.load_panel(others)), config)


def test_weights_of_a_fit_beside_other_indices_are_refused(prices, market, others, fitted):
    beside = fc.load_panel(pd.concat([prices, index(520)])).with_market("VIX", forecast=False)
    with pytest.raises(UsageError, match=r"of a fit without a market; .* with the market VIX"):
        fc.fit(beside.with_auxiliary(fitted.common_weights), CONFIG)
    made = fc.fit(beside.with_auxiliary(fc.load_panel(others)), CONFIG)
    known = made.common_weights
    assert known is not None and known.market == ("VIX",)
    with pytest.raises(UsageError, match="with the market VIX; expected one without a market"):
        fc.fit(market.with_auxiliary(known), CONFIG)
    assert weights_of(fc.fit(beside.with_auxiliary(known), CONFIG)) == weights_of(made)


def test_beside_an_index_a_few_series_learn_from_others(prices, others, fitted):
    few = prices[prices["ticker"].isin(["S00", "S03", "S07"])]
    beside = fc.load_panel(pd.concat([few, index(520)])).with_market("VIX", forecast=False)
    model = fc.fit(beside.with_auxiliary(fc.load_panel(others)), CONFIG)
    common = model.transform.learned.common_volatility
    assert common is not None and not common.peers and common.market == ("VIX",)
    assert fc.fit(beside, CONFIG).transform.learned.common_volatility is None
    with pytest.raises(UsageError, match="at least 10 series; these prices are 3"):
        fc.fit(beside.with_auxiliary(fitted.common_weights), CONFIG)
    with pytest.raises(UsageError, match="at least 10 series; these prices are 3"):
        fc.fit(fc.load_panel(few).with_auxiliary(fc.load_panel(others)), CONFIG)


def test_weights_for_fewer_steps_are_refused(market, fitted):
    config = dataclasses.replace(CONFIG, horizon=3)
    with pytest.raises(UsageError, match="forecasts 2 steps; expected at least 3"):
        fc.fit(market.with_auxiliary(fitted.common_weights), config)


def test_others_that_cannot_be_learned_from_are_refused(market, others):
    other = fc.load_panel(others)
    sales = others.rename(columns={"close": "y"})[["ticker", "date", "y"]]
    with pytest.raises(UsageError, match="the other series are not prices"):
        market.with_auxiliary(fc.load_panel(sales))
    weekly = others.groupby("ticker").nth(list(range(0, 520, 5)))
    with pytest.raises(
        UsageError, match="expected the frequency of these series, weekdays; got weeks"
    ):
        market.with_auxiliary(fc.load_panel(weekly))
    with pytest.raises(UsageError, match="expected a Panel, or a model's common_weights"):
        market.with_auxiliary(others)  # type: ignore[arg-type]
    few = other.only(other.ids[:9])
    with pytest.raises(UsageError, match="at least 10 series; the other series are 9"):
        fc.fit(market.with_auxiliary(few), CONFIG)
    with pytest.raises(UsageError, match="at least 10 series; these prices are 3"):
        fc.fit(market.only(market.ids[:3]).with_auxiliary(other), CONFIG)
    later = other.between(str(market.times[-50])[:10])
    with pytest.raises(UsageError, match="no rows to learn from before"):
        fc.fit(market.with_auxiliary(later), CONFIG)


@pytest.mark.parametrize(
    "setting", [{"start": "independent"}, {"common_volatility": False}, {"model": "ets"}]
)
def test_a_fit_that_learns_nothing_from_others_says_so(market, others, setting):
    config = dataclasses.replace(CONFIG, **setting)
    with pytest.raises(UsageError, match=f"learn-from: with {next(iter(setting))} = .*leave"):
        fc.fit(market.with_auxiliary(fc.load_panel(others)), config)


@pytest.fixture(scope="module")
def folder(prices, others, tmp_path_factory):
    folder = tmp_path_factory.mktemp("auxiliary")
    prices.to_csv(folder / "p.csv", index=False)
    others.to_csv(folder / "others.csv", index=False)
    (folder / "c.toml").write_text("\n".join(f"{name} = {value}" for name, value in SMALL.items()))
    return folder


def command(folder, what: str, *options: object, home: str = "home") -> Any:
    return run(
        what, "--source", f"files:{folder / 'p.csv'}", "--config", folder / "c.toml",
        "--home", folder / home, *options,
    )  # fmt: skip


def learned(folder, home: str = "home") -> tuple[tuple[float, ...], ...]:
    return weights_of(fc.load(Home(folder / home).latest_run()))


def test_the_command_learns_from_a_file_and_from_a_run(folder, fitted):
    done = command(folder, "fit", "--learn-from", folder / "others.csv", "--run", "first")
    assert done.exit_code == 0, done.output
    first = learned(folder)
    np.testing.assert_allclose(first, weights_of(fitted), rtol=1e-6)
    for given in ("first", folder / "home"):
        done = command(folder, "fit", "--learn-from", given, "--run", f"x{len(str(given))}")
        assert done.exit_code == 0, done.output
        np.testing.assert_array_equal(learned(folder), first)
    shown = run("runs", "compare", "first", "x5", "--home", folder / "home")
    assert "--learn-from" in shown.output, shown.output


@pytest.mark.slow
def test_a_fit_in_shards_learns_the_same(folder, monkeypatch):
    monkeypatch.setattr("forecaster.pipeline.memory.MOST_PER_SHARD", 5)
    for home in ("whole", "shards"):
        if home == "whole":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("forecaster.pipeline.memory.MOST_PER_SHARD", 50)
                done = command(folder, "fit", "--learn-from", folder / "others.csv", home=home)
        else:
            done = command(folder, "fit", "--learn-from", folder / "others.csv", home=home)
        assert done.exit_code == 0, done.output
    assert (Home(folder / "shards").latest_run() / "shards").is_dir()
    made = [
        run("predict", "--all", "--home", folder / home, "--output", folder / f"{home}.csv")
        for home in ("whole", "shards")
    ]
    assert [each.exit_code for each in made] == [0, 0]
    assert (folder / "whole.csv").read_bytes() == (folder / "shards.csv").read_bytes()


@pytest.mark.slow
def test_an_evaluation_learns_from_them_too(folder):
    forecasts = []
    for number, learned_from in enumerate(((), ("--learn-from", folder / "others.csv"))):
        options = ("--windows", "2", "--baselines", "naive", "--output", folder / f"out{number}")
        done = command(folder, "evaluate", *learned_from, *options)
        assert done.exit_code == 0, done.output
        forecasts.append(pd.read_parquet(folder / f"out{number}" / "forecasts.parquet"))
    assert not forecasts[0]["LSTM-lo-80"].equals(forecasts[1]["LSTM-lo-80"])
    assert forecasts[0]["y"].equals(forecasts[1]["y"])


def test_a_file_that_has_changed_is_not_resumed_with(folder, tmp_path):
    file = tmp_path / "others.csv"
    file.write_bytes((folder / "others.csv").read_bytes())
    request = FitRequest(
        "files:p.csv", ("S00",), {}, "", CONFIG, 0, learn_from=str(file),
        learn_from_sha256=digest_of(file), versions={},
    )  # fmt: skip
    assert request.changed() == []
    file.write_text("ticker,date,close\n")
    assert request.changed() == ["the series of --learn-from"]


def test_the_command_says_what_it_cannot_learn_from(folder):
    done = command(folder, "fit", "--learn-from", "nothing.csv")
    assert done.exit_code == 2
    assert "--learn-from nothing.csv: no such file or folder, and no run" in done.output
    for option in (("--start-from", "independent"), ("--tune",)):
        done = command(folder, "fit", "--learn-from", folder / "others.csv", *option)
        assert done.exit_code == 2 and "nothing is learned from other series" in done.output
    (folder / "sales.csv").write_text("unique_id,ds,y\n" + "a,2024-01-01,1\na,2024-01-02,2\n" * 1)
    done = command(folder, "fit", "--learn-from", folder / "sales.csv")
    assert done.exit_code == 2 and "sales.csv: the other series are not" in done.output
