"""Sessions that series lack, until now and beside the others."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series import Ends, find_late, regular_sessions
from forecaster.series import late as module

SESSIONS = regular_sessions("2022-01-03", "2024-06-28")
END = "2024-06-28"  # in place of the clock


def panel(**last) -> fc.Panel:
    """Series of New York's sessions up to a day each."""
    days = {name: SESSIONS[pd.Timestamp(day) >= SESSIONS] for name, day in last.items()}
    return fc.Panel.from_frame(
        pd.concat(pd.DataFrame({"unique_id": n, "ds": d, "y": 1.0}) for n, d in days.items())
    )


def found(kind: str, panel: fc.Panel, *options) -> dict[str, int]:
    return {one.name: one.rows for one in find_late(panel, *options) if one.kind == kind}


@pytest.mark.parametrize(
    ("now", "late"),
    [
        ("2024-05-24 20:00", 0),  # a Friday at 16:00 in New York: its session may not be final
        ("2024-05-24 20:31", 1),
        ("2024-05-28 12:00", 1),  # after a weekend and Memorial Day
        ("2024-05-29 03:00", 2),  # still Tuesday in New York
    ],
)
def test_a_session_of_new_york_is_missed_once_it_is_over(monkeypatch, now, late):
    class Clock(pd.Timestamp):
        @classmethod
        def now(cls, tz=None):
            return pd.Timestamp(now, tz=tz)

    monkeypatch.setattr(module.pd, "Timestamp", Clock)
    assert found("late", panel(AAA="2024-05-23")).get("AAA", 0) == late


def test_late_is_by_a_day_or_the_others_and_behind_by_most_of_the_others():
    made = panel(AAA="2024-05-23", BBB="2024-05-24", CCC="2024-05-24", DDD="2024-06-20")
    assert found("late", made, "2024-05-24") == {"AAA": 1} == found("behind", made, END)
    assert "BBB" in found("late", made, "2024-06-20")
    other = panel(**{"AAA": "2024-05-23", "BBB": "2024-05-23", "CCC.T": "2024-05-24"})
    assert found("behind", other, END) == {}  # exchanges close at other times
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": range(rows), "y": 1.0})
        for name, rows in (("A", 50), ("B", 60), ("C", 60))
    )
    assert not [*find_late(fc.Panel.from_frame(frame))]  # series that count


def test_one_alone_is_compared_with_the_other_stored_series_unless_it_is_retired():
    made = panel(AAA="2024-05-23")
    day, later = np.datetime64("2024-05-24"), np.datetime64("2024-05-28")
    stored = {"AAA": np.datetime64("2024-05-23"), "BBB": later, "CCC": day, "DDD": later}
    assert found("behind", made, END, Ends(stored)) == {"AAA": 2}
    assert found("behind", made, END, Ends({n: t for n, t in stored.items() if n != "AAA"})) == {}
    elsewhere = Ends({"AAA": stored["AAA"], "BBB.T": later, "CCC.T": later})
    assert found("behind", made, END, elsewhere) == {}


def test_the_ends_of_all_series_give_what_each_part_of_them_gives_beside_the_others():
    random = np.random.default_rng(0)
    days = pd.bdate_range("2024-05-01", "2024-05-24").strftime("%Y-%m-%d")
    names = [f"{letter * 3}{ending}" for letter in "ABCDEFG" for ending in ("", ".T", ".L")]
    made = panel(**dict(zip(names, random.choice(days[-4:], len(names)), strict=True)))
    ends = dict(zip(names, (made.times[own][-1] for own in made.mask), strict=True))
    together = found("behind", made, END)
    assert 0 < len(together) < len(names)
    for some in (names[:1], names[3:9], names):
        part = found("behind", made.only(some), END, Ends(ends))
        assert part == {name: count for name, count in together.items() if name in some}


def test_series_that_had_ended_at_the_fit_are_known_to_have():
    made = panel(AAA="2024-04-23", BBB="2024-05-24", CCC="2024-05-28", DDD="2024-05-28")
    fit = {name: np.datetime64("2024-05-24") for name in made.ids}
    then = {**fit, "AAA": np.datetime64("2024-04-23")}
    stored = Ends(dict(zip(made.ids, (made.times[own][-1] for own in made.mask), strict=True)))
    known = Ends.at_fit(then)
    assert [*found("ended", made, END, stored, lambda: known)] == [
        "AAA"
    ]  # BBB is late since the fit
    assert [*found("behind", made, END, stored, lambda: known)] == ["BBB"]
    assert [*found("ended", made.only(["AAA"]), END, stored, lambda: known)] == ["AAA"]
    earlier = Ends.at_fit({**then, "AAA": np.datetime64("2024-04-22")})
    close = dataclasses.replace(made, channels=("close",), target="close")
    assert not found("ended", made, END, stored, lambda: earlier)
    assert not found("ended", close, END, stored, lambda: known)
    # At the first fit it had not ended, though others were updated since.
    until = {**fit, "AAA": np.datetime64("2024-04-23", "ns")}
    updated = Ends.at_fit(until, np.datetime64("2024-04-23"))
    assert not found("ended", made, END, stored, lambda: updated)
