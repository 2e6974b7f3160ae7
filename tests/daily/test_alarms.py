"""Which series that lack sessions raise an alarm, and which are only named."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forecaster.daily import Limits
from forecaster.daily.alarms import LATE, alarms_of_prediction
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
