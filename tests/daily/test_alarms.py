"""Which series that lack sessions raise an alarm, and which are only named."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forecaster.daily import Limits
from forecaster.daily.alarms import LATE, MODEL, alarms_of_prediction
from forecaster.pipeline import Prediction
from forecaster.series import Finding


@pytest.mark.parametrize("most", [0, 2])
def test_a_series_may_lack_as_many_sessions_as_the_limit_says_and_no_more(most):
    late = {"at": most, "beyond": most + 1} if most else {"beyond": 1}
    found = [
        Finding(kind, name, f"ends 2024-03-01, {count} sessions behind", count)
        for kind in ("late", "behind")
        for name, count in late.items()
    ]
    nothing: Any = None
    made = Prediction(nothing, nothing, nothing, {}, Path("tech"), found)
    alarms, partly = alarms_of_prediction(made, Limits(late=most), datetime.now(UTC))
    assert [(alarm.kind, alarm.series) for alarm in alarms] == [(LATE, "beyond")]
    assert alarms[0].text.startswith("ends 2024-03-01,")
    assert list(partly) == (["at"] if most else [])


@pytest.mark.parametrize(
    ("age", "said"),
    [(179, ""), (181, "was fitted 181 days ago"), (-0.5, ""), (-9, "was fitted later than now")],
)
def test_a_run_that_is_old_or_dated_later_than_now_raises_an_alarm(age, said):
    now = datetime(2024, 7, 1, 12, tzinfo=UTC)
    folder = Path(f"{now - timedelta(days=age):%Y%m%d-%H%M%S}-000.weekly")
    model: Any = SimpleNamespace(provenance={"source": "yahoo"})
    nothing: Any = None
    made = Prediction(model, nothing, nothing, {}, folder)
    alarms, _ = alarms_of_prediction(made, Limits(), now)
    assert [alarm.kind for alarm in alarms] == ([MODEL] if said else [])
    assert not said or f"run weekly {said}" in alarms[0].text
