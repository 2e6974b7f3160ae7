"""Splits and changes of currency that a source leaves out are recognised, and then adjusted."""

import numpy as np
import pandas as pd
import pytest

from forecaster.files import Home
from forecaster.ingest import Store, proposals, proposed
from forecaster.series import Panel
from tests.cli.desk import BAR, Desk
from tests.conftest import prices
from tests.ingest.older import written

NAMES = [f"T{n}" for n in range(12)]
TABLE = pd.concat([prices(name, 150) for name in NAMES], ignore_index=True)
DAYS = sorted(TABLE["date"].unique())
DAY = DAYS[-20]


def split(
    share: float, name: str = "T3", table: pd.DataFrame = TABLE, day: str = DAY
) -> pd.DataFrame:
    """Prices of one ticker are ``share`` times as high from a day on, volumes the inverse."""
    table = table.astype({"volume": float})
    since = (table["ticker"] == name) & (table["date"] >= day)
    table.loc[since, BAR] *= share
    table.loc[since, "volume"] /= share
    return table


def found(table: pd.DataFrame):
    return proposals(Panel.from_frame(table.rename(columns={"ticker": "unique_id", "date": "ds"})))


def test_a_split_is_recognised_by_its_exact_ratio_if_it_lasts():
    for share in (1 / 2, 2 / 3, 1 / 20, 10, 3):
        (one,) = found(split(share)).items()
        assert one[0] == "T3" and one[1].time == DAY and one[1].split
        assert one[1].factor == pytest.approx(share)
    wrong = split(0.25)  # for some sessions
    wrong.loc[(wrong["ticker"] == "T3") & (wrong["date"] >= DAYS[-15]), BAR] *= 4
    for table in (TABLE, wrong, split(0.58), split(0.9), split(1.3)):
        assert found(table) == {}


def moved(by: float | dict[str, float], names=NAMES) -> pd.DataFrame:
    """Some tickers, whose prices are multiplied by a number, or each by its own, from a day on."""
    table = TABLE[TABLE["ticker"].isin(names)].copy()
    later = table["date"] >= DAY
    factors = table["ticker"].map(by) if isinstance(by, dict) else pd.Series(by, table.index)
    table.loc[later, BAR] = table.loc[later, BAR].mul(factors[later], axis=0)
    return table


def test_another_currency_of_all_is_recognised():
    ended = moved(0.73, NAMES[:10])
    ended = ended[ended["ticker"].isin(NAMES[:8]) | (ended["date"] < DAY)]
    for table, names in ((moved(0.73), NAMES), (moved(0.73, NAMES[:3]), NAMES[:3]),
                         (ended, NAMES[:8])):  # fmt: skip
        made = found(table)
        assert set(made) == set(names) and {one.time for one in made.values()} == {DAY}
        for one in made.values():
            assert one.factor == pytest.approx(0.73, rel=0.02) and not one.split


def test_a_crash_and_moves_of_one_asset_or_of_two_series_are_no_other_currency():
    falls = [np.linspace(0.78, 0.96, 12), (0.68, 0.73, 0.78), (0.72, 0.72, 0.6), (0.85,) * 3]
    for each in falls:  # they fall apart, one falls apart from two, or all fall by little
        assert found(moved(dict(zip(NAMES, each, strict=False)), NAMES[: len(each)])) == {}
    assert found(moved(0.73, NAMES[:2])) == {}
    one = moved(0.63, NAMES[:1]).reset_index(drop=True)
    noise = np.random.default_rng(0).normal(1, 0.001, (3, len(one)))
    parts = [one.assign(ticker=f"BTC-{n}") for n in range(3)]  # in three currencies
    for part, around in zip(parts, noise, strict=True):
        part[BAR] = part[BAR].mul(around, axis=0)
    assert found(pd.concat(parts, ignore_index=True)) == {}


@pytest.fixture
def mornings(tmp_path):
    return Desk(tmp_path)


def closes(mornings, name: str = "T3") -> pd.DataFrame:
    done = mornings("export", name, "--output", mornings.folder / "e.csv", "--overwrite")
    assert done.exit_code == 0, done.output
    return pd.read_csv(mornings.folder / "e.csv")


def test_it_is_said_and_applied_on_request_also_to_what_arrives_later(mornings):
    whole = split(0.25, table=pd.concat([prices(n, 152) for n in NAMES], ignore_index=True))
    done = mornings.ingest(whole[whole["date"] <= DAYS[-1]])
    assert done.exit_code == 0 and f"T3: before {DAY}: its open was 0.2" in done.stderr
    listed = mornings("adjust")
    said = f"T3: rows before {DAY} times 0.25, volumes divided by it"
    assert f"{said}: " in listed.stdout
    assert "as in a split 4 for 1" in listed.stdout
    raw = closes(mornings)
    done = mornings("adjust", "t3")
    assert done.exit_code == 0 and done.stdout == f"{said}\n"
    made, before = closes(mornings), raw["date"] < DAY if "date" in raw else raw["ds"] < DAY
    np.testing.assert_allclose(made["close"][before], raw["close"][before] / 4)
    np.testing.assert_allclose(made["volume"][before], raw["volume"][before] * 4)
    np.testing.assert_allclose(made["close"][~before], raw["close"][~before])
    assert "Nothing to adjust" in mornings("adjust").stdout
    # The source goes on without it; later it carries the split into earlier rows itself.
    ways = {"unadjusted: times 0.25": whole, "restated: kept": whole.assign(**made_whole(whole))}
    for how, table in ways.items():
        done = mornings.ingest(table)
        assert done.exit_code == 0
        assert done.stderr == f"Warning: T3: 130 rows before {DAY} came {how}\n"
        np.testing.assert_allclose(closes(mornings)["close"][:130], made["close"][:130])


def made_whole(table: pd.DataFrame) -> dict[str, pd.Series]:
    its = (table["ticker"] == "T3") & (table["date"] < DAY)
    return {name: table[name].mask(its, table[name] / 4) for name in BAR}


def test_it_is_undone_and_what_cannot_be_adjusted_is_said(mornings):
    assert mornings.ingest(split(2)).exit_code == 0
    raw = closes(mornings)
    done = mornings("adjust", "T1", "T3")
    assert done.exit_code == 2 and "no adjustment is proposed for T1; there are T3" in done.stderr
    assert mornings("adjust", "--all").exit_code == 0
    assert not np.allclose(closes(mornings)["close"], raw["close"])
    done = mornings("adjust", "T3", "--undo")
    assert done.exit_code == 0 and "--refresh` reads the prices" in done.stdout
    assert mornings.ingest(None, "--refresh").exit_code == 0
    pd.testing.assert_frame_equal(closes(mornings), raw)
    done = mornings("adjust", "T3", "--undo")
    assert done.exit_code == 2 and "no adjustment is kept for T3" in done.stderr
    assert mornings("adjust", "--undo").exit_code == 2


def test_a_real_move_is_dismissed_and_proposed_no_more(mornings, settings):
    table = pd.concat([split(0.5), split(2, "T5")[lambda t: t["ticker"] == "T5"]])
    table = table.drop_duplicates(["ticker", "date"], keep="last")
    assert mornings.ingest(table).exit_code == 0
    raw = closes(mornings)
    mornings.fit("--config", settings)
    said = mornings("predict", "T3", "--end", DAYS[-1]).stderr
    assert f"before {DAY}: its open was" in said and "forecaster adjust" in said
    done = mornings("adjust", "t3", "--dismiss")
    assert done.exit_code == 0 and f"T3: the move of {DAY} is left as it is" in done.stdout
    listed = mornings("adjust").stdout
    assert "T5" in listed and "T3" not in listed
    pd.testing.assert_frame_equal(closes(mornings), raw)
    assert "T3" not in mornings.ingest(table, "--refresh").stderr
    assert "unadjusted" not in mornings("predict", "T3", "--end", DAYS[-1]).stderr
    assert mornings("adjust", "T3", "--undo").exit_code == 0  # forget that it was dismissed
    assert "T3" in mornings("adjust").stdout
    assert mornings("adjust", "--dismiss").exit_code == 2


def test_a_factor_of_ones_own_is_applied_where_prices_moved_by_it(mornings):
    assert mornings.ingest(split(0.58)).exit_code == 0
    assert "Nothing to adjust" in mornings("adjust").stdout
    raw = closes(mornings)
    own = ("adjust", "T3", "--factor", "0.58", "--before")
    done = mornings(*own, DAYS[-30])
    assert done.exit_code == 2 and "T3: prices did not move by about 0.58" in done.stderr
    pd.testing.assert_frame_equal(closes(mornings), raw)
    done = mornings(*own, DAY, "--no-volume")
    said = f"T3: rows before {DAY} times 0.58, volumes as they are"
    assert done.exit_code == 0 and said in done.stdout
    made, before = closes(mornings), raw["date"] < DAY if "date" in raw else raw["ds"] < DAY
    np.testing.assert_allclose(made["close"][before], raw["close"][before] * 0.58)
    np.testing.assert_allclose(made["volume"], raw["volume"])
    assert mornings.ingest(split(0.58)).exit_code == 0  # the source sends them unadjusted again
    pd.testing.assert_frame_equal(closes(mornings), made)
    for wrong, words in (
        (("T3", "--factor", "0.5"), "go together"),
        (("--factor", "0.5", "--before", DAY), "name one ticker"),
        (("T3", "--factor", "-1", "--before", DAY), "expected a number above 0 other than 1"),
        (("T99", "--factor", "0.5", "--before", DAY), "T99: not stored"),
    ):
        done = mornings("adjust", *wrong)
        assert done.exit_code == 2 and words in done.stderr


def test_a_series_that_counts_does_not_hide_the_split_of_one_with_dates(tmp_path):
    """It has a column that the others lack, which is then no column of theirs."""
    table = split(0.25).rename(columns={"ticker": "unique_id", "date": "ds"})
    table = table.astype({"ds": "datetime64[ns]"})[["unique_id", "ds", "close"]]
    store = Store.open(Home(tmp_path), "files")
    with store.locked():
        for name, rows in table.groupby("unique_id"):
            written(store, str(name), rows.drop(columns="unique_id").reset_index(drop=True))
        counted = pd.DataFrame({"ds": range(300), "open": 1.0, "close": 1.0})
        written(store, "Z", counted)
        store.commit()
    expected = proposals(Panel.from_frame(table))
    assert "T3" in expected and proposed(store) == expected
