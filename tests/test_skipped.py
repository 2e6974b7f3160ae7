"""Reasons as values: one sentence each, and on disk as fields."""

import json

import pytest

from forecaster.errors import Kind, Skipped, skipped_frame, skipped_from_json, skipped_to_json

FIELDS = {
    "rows": 30, "needed": 34, "column": "close", "value": -1.5, "market": "SPY",
    "first": "2024-01-02", "last": "2024-03-01", "detail": "a text",
}  # fmt: skip
SENTENCES = {
    Kind.TOO_SHORT: "30 rows; 34 needed (a text)",
    Kind.TOO_SHORT_TO_FORECAST: "30 rows; a forecast is made from 34",
    Kind.NO_ROWS: "no rows between 2024-01-02 and 2024-03-01",
    Kind.OUTSIDE: "no rows in that span; there are 2024-01-02 to 2024-03-01",
    Kind.MASKED: "all of its rows were left out",
    Kind.BEGINS_LATER: "no rows up to the first cutoff, 2024-01-02",
    Kind.NO_SCORES: "no cutoff (2024-01-02 to 2024-03-01) has two rows up to it and one after it",
    Kind.NO_SCORES_AS_MEMBER: "no cutoff (2024-01-02 to 2024-03-01) at which it was a member of "
    "the universe has two rows up to it and one after it",
    Kind.REPEATED_TIME: "more than one row for 2024-01-02",
    Kind.REPEATED_HOUR: "more than one row for 2024-01-02; the end of summer time repeats this "
    "hour in many zones. Give times with their offset and --date-format utc, or one row for the "
    "hour",
    Kind.NO_NUMBER: "column 'close' holds no number",
    Kind.NOT_DATES: "its times are whole numbers; those of most are dates",
    Kind.NOT_COUNTED: "its times are dates; those of most are whole numbers",
    Kind.INFINITE: "close is -1.5 on 2024-01-02; expected a finite number, or none",
    Kind.CONSTANT: "close never changes",
    Kind.NOT_POSITIVE: "close is -1.5 on 2024-01-02; a price must be above zero",
    Kind.NO_LONGER_POSITIVE: "close is -1.5 on 2024-01-02; it had always been above zero when the "
    "model was fitted; fit again",
    Kind.TOO_FAR_APART: "close is -1.5 on 2024-01-02: its values lie too far apart for computing; "
    "look at them, or divide them",
    Kind.OTHER_SPACING: "a text; fit again on these, or forecast from rows as those were",
    Kind.BEFORE_MARKET: "the market SPY has no row yet on 2024-01-02",
    Kind.BEHIND_MARKET: "its latest row is of 2024-01-02, but the market SPY ends on 2024-03-01; "
    "bring SPY up to date",
    Kind.NOT_FINITE: "its forecasts on the validation span are not finite numbers; look at its "
    "values",
    Kind.FORECAST_NOT_FINITE: "the forecast is not finite, so the model or the latest values are "
    "damaged; look at the series, or fit again",
    Kind.NOT_TRAINED: "a text",
    Kind.NO_LOGARITHM: "close is -1.5 on 2024-01-02, and its logarithm is forecast",
    Kind.NO_FORECASTS: "no forecasts from a text",
    Kind.NO_NETWORK: "the model has no network for it",
    Kind.SKIPPED_BY_FIT: "was skipped by the fit: a text",
    Kind.NOT_IN_MODEL: "not among the a text",
    Kind.NOT_LOADED: "a text",
    Kind.UNREADABLE: "a text",
    Kind.NOT_STORED: "no longer stored; run `forecaster ingest --source a text` again",
    Kind.LATE: "the number of sessions that it lacks is 30; --max-late allows 34",
    Kind.OTHER: "a text",
}


def reason_of(kind: Kind) -> Skipped:
    return Skipped(kind, **{name: FIELDS[name] for name in kind.parts})


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_its_sentence_and_is_the_same_on_disk(kind):
    reason = reason_of(kind)
    assert str(reason) == f"{reason}" == SENTENCES[kind]
    stored = json.loads(json.dumps(reason.to_json()))
    assert stored.pop("reason") == SENTENCES[kind] and stored.pop("kind") == kind.value
    assert stored == {name: FIELDS[name] for name in kind.parts}
    assert Skipped.from_json(reason.to_json()) == reason
    for name in kind.parts:
        with pytest.raises(ValueError, match=f"{kind.value}: expected {name}"):
            Skipped(kind, **{other: FIELDS[other] for other in kind.parts if other != name})


def test_text_of_older_versions_and_kinds_of_newer_ones_are_read():
    old = skipped_from_json({"A": "30 rows; 34 needed (why)"})
    assert old == {"A": Skipped(Kind.OTHER, detail="30 rows; 34 needed (why)")}
    new = Skipped.from_json({"kind": "sunk", "depth": 5, "reason": "it sank"})
    assert new == Skipped(Kind.OTHER, detail="it sank") and str(new) == "it sank"


@pytest.mark.parametrize(
    "stored",
    [
        None, 5, [], {}, {"kind": "too_short"}, {"kind": ["too_short"]}, {"kind": "sunk"},
        {"kind": "too_short", "rows": "30", "needed": 34, "detail": ""},
        {"kind": "too_short", "rows": True, "needed": 34, "detail": ""},
        {"kind": "no_network", "value": {}}, {"kind": "other", "reason": 5},
    ],
)  # fmt: skip
def test_what_is_no_reason_is_refused_by_name(stored):
    with pytest.raises((TypeError, ValueError), match="skipped: 'A': "):
        skipped_from_json({"A": stored})


def test_a_frame_has_the_fields():
    skipped = {"A": reason_of(Kind.TOO_SHORT), "B": reason_of(Kind.CONSTANT)}
    assert skipped_from_json(skipped_to_json(skipped)) == skipped
    frame = skipped_frame(skipped)
    assert list(frame) == ["unique_id", "kind", "rows", "needed", "reason"]
    assert frame["kind"].tolist() == ["too_short", "constant"]
    assert frame["rows"].tolist()[:1] == [30] and frame["needed"].isna().tolist() == [False, True]
