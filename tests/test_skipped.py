"""Reasons as values: one sentence each, and on disk as fields."""

import json

import pytest

from forecaster.errors import (
    Kind,
    Skipped,
    name_reasons,
    skipped_from_json,
    skipped_to_json,
)
from tests.messages import refuses

FIELDS = {
    "rows": 30, "needed": 34, "column": "close", "value": -1.5, "market": "SPY",
    "first": "2024-01-02", "last": "2024-03-01", "detail": "a text",
}  # fmt: skip


def test_every_kind_is_a_sentence_with_its_fields_and_is_the_same_on_disk():
    skipped: dict[str, Skipped] = {
        kind: Skipped(kind, **{name: FIELDS[name] for name in kind.parts}) for kind in Kind
    }
    assert str(skipped[Kind.TOO_SHORT]) == "30 rows; 34 needed (a text)"
    assert str(skipped[Kind.INFINITE]).startswith("close is -1.5 on 2024-01-02; expected a finite")
    stored = json.loads(json.dumps(skipped_to_json(skipped)))
    for kind, reason in skipped.items():
        assert all(str(FIELDS[name]) in str(reason) for name in Kind(kind).parts)
        assert stored[kind].pop("reason") == str(reason)
    assert skipped_from_json(stored) == skipped


@pytest.mark.parametrize(
    "stored",
    [
        None, 5, [], {}, "text", {"kind": "too_short"}, {"kind": ["too_short"]}, {"kind": "sunk"},
        {"kind": "too_short", "rows": "30", "needed": 34, "detail": ""},
        {"kind": "too_short", "rows": True, "needed": 34, "detail": ""},
        {"kind": "other", "reason": 5},
    ],
)  # fmt: skip
def test_what_is_no_reason_is_refused_by_name(stored):
    with refuses(ValueError):
        skipped_from_json({"A": stored})


def test_a_reason_is_a_line_and_many_are_cut():
    reasons = {f"S{n}": "not found" for n in range(10)} | {"odd": "no rows"}
    assert name_reasons(reasons).splitlines() == [
        "  S0, S1, S2, S3, S4, S5, S6, S7 and 2 more: not found", "  odd: no rows",
    ]  # fmt: skip
    each = name_reasons({f"S{n}": f"{n} rows; 120 needed" for n in range(12)}).splitlines()
    assert each[0] == "  S0: 0 rows; 120 needed" and each[8:] == ["  and 4 more series"]
