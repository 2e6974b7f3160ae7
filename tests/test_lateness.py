"""Sessions that series lack, until now and beside the others."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.pipeline import lateness
from forecaster.pipeline.lateness import Ends
from forecaster.series import regular_sessions

SESSIONS = regular_sessions("2022-01-03", "2024-06-28")


def panel(**last) -> fc.Panel:
    """Series of New York's sessions up to a day each."""
    days = {name: SESSIONS[pd.Timestamp(day) >= SESSIONS] for name, day in last.items()}
    return fc.Panel.from_frame(
        pd.concat(pd.DataFrame({"unique_id": n, "ds": d, "y": 1.0}) for n, d in days.items())
    )


@pytest.mark.parametrize(
    ("now", "late"),
    [
        ("2024-05-24 20:00", 0),  # a Friday at 16:00 in New York: its session may not be final
        ("2024-05-24 20:31", 1),
        ("2024-05-28 12:00", 1),  # after a weekend and Memorial Day
        ("2024-05-28 20:31", 2),
        ("2024-05-29 03:00", 2),  # still Tuesday in New York
        ("2024-05-29 20:31", 3),
    ],
)
def test_a_session_of_new_york_is_missed_once_it_is_over(monkeypatch, now, late):
    class Clock(pd.Timestamp):
        @classmethod
        def now(cls, tz=None):
            return pd.Timestamp(now, tz=tz)

    monkeypatch.setattr(lateness.pd, "Timestamp", Clock)
    assert lateness.sessions_late(panel(AAA="2024-05-23")) == {"AAA": late}


def test_until_a_day_all_of_its_sessions_count():
    made = panel(AAA="2024-05-23", BBB="2024-05-24")
    assert lateness.sessions_late(made, "2024-05-24") == {"AAA": 1, "BBB": 0}
    assert lateness.sessions_late(made, "2024-05-27") == {"AAA": 1, "BBB": 0}


def test_most_of_the_others_say_which_session_is_the_latest():
    made = panel(AAA="2024-05-23", BBB="2024-05-24", CCC="2024-05-24", DDD="2024-06-20")
    assert lateness.sessions_behind(made) == {"AAA": 1}  # one ahead makes nobody late


def test_exchanges_that_close_at_other_times_are_not_compared():
    made = panel(**{"AAA": "2024-05-23", "BBB": "2024-05-23", "CCC.T": "2024-05-24"})
    assert lateness.sessions_behind(made) == {}


def test_series_that_count_are_never_late():
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": range(rows), "y": 1.0})
        for name, rows in (("A", 50), ("B", 60), ("C", 60))
    )
    made = fc.Panel.from_frame(frame)
    assert lateness.sessions_late(made) == {"A": 0, "B": 0, "C": 0}
    assert lateness.sessions_behind(made) == {}


def test_one_alone_is_compared_with_the_other_stored_series():
    made = panel(AAA="2024-05-23")
    others = {"BBB": np.datetime64("2024-05-28"), "CCC": np.datetime64("2024-05-24")}
    assert lateness.sessions_behind(made) == {}
    assert lateness.sessions_behind(made, Ends({**others, "DDD": others["BBB"]})) == {"AAA": 2}
    elsewhere = Ends({"BBB.T": others["BBB"], "CCC.T": others["BBB"]})
    assert lateness.sessions_behind(made, elsewhere) == {}


def test_the_ends_of_all_series_give_what_each_part_of_them_gives_beside_the_others():
    random = np.random.default_rng(0)
    days = pd.bdate_range("2024-05-01", "2024-05-24").strftime("%Y-%m-%d")
    names = [f"{letter * 3}{ending}" for letter in "ABCDEFG" for ending in ("", ".T", ".L")]
    made = panel(**dict(zip(names, random.choice(days[-4:], len(names)), strict=True)))
    ends = dict(zip(names, (made.times[own][-1] for own in made.mask), strict=True))
    together = lateness.sessions_behind(made)
    assert 0 < len(together) < len(names)
    for some in (names[:1], names[3:9], names):
        part = lateness.sessions_behind(made.only(some), Ends(ends))
        assert part == {name: count for name, count in together.items() if name in some}


def test_series_that_had_ended_at_the_fit_are_known_to_have():
    made = panel(AAA="2024-04-23", BBB="2024-05-24", CCC="2024-05-28", DDD="2024-05-28")
    fit = {name: np.datetime64("2024-05-24") for name in made.ids}
    then = {**fit, "AAA": np.datetime64("2024-04-23")}
    known = Ends.at_fit(then)
    assert lateness.ended_before(made, known) == ["AAA"]  # BBB is late only since the fit
    assert lateness.ended_before(made.only(["AAA"]), known) == ["AAA"]  # whichever are asked for
    earlier = Ends.at_fit({**then, "AAA": np.datetime64("2024-04-22")})
    assert lateness.ended_before(made, earlier) == []
    close = dataclasses.replace(made, channels=("close",), target="close")
    assert lateness.ended_before(close, known) == []


def test_a_series_that_ends_after_the_fit_has_not_ended_before_it_though_others_were_updated():
    last = dict.fromkeys("abc", "2024-06-28")
    there = panel(**last, dead="2024-05-28", old="2023-06-28")
    fit = np.datetime64("2024-05-28", "ns")
    until = dict.fromkeys("abc", np.datetime64("2024-06-28", "ns"))
    until |= {"dead": fit, "old": np.datetime64("2023-06-28", "ns")}
    assert lateness.ended_before(there, Ends.at_fit(until, fit)) == ["old"]
    assert lateness.ended_before(there, Ends.at_fit(until)) == ["dead", "old"]
