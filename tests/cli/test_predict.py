"""The exit code of ``predict``, whatever was forecast."""

from types import SimpleNamespace

import pandas as pd
import pytest

from forecaster import pipeline
from tests.conftest import run


@pytest.mark.parametrize(
    ("unknown", "behind", "code"),
    [({}, {}, 0), ({"B": "not stored"}, {}, 3), ({}, {"A": 1}, 3), ({"B": "no"}, {"A": 1}, 3)],
)
def test_it_says_whether_series_are_left_out_or_end_before_the_others(
    tmp_path, monkeypatch, unknown, behind, code
):
    frame = pd.DataFrame({"unique_id": ["A"], "ds": [1], "LSTM": [2.0]})
    made = SimpleNamespace(
        frame=frame, unknown=unknown, simulated=True, found={"behind": behind}.get
    )
    monkeypatch.setattr(pipeline, "predict_from_home", lambda *_, **__: made)
    done = run("predict", "A", "--format", "csv", "--home", tmp_path)
    assert done.exit_code == code and "A,1,2.0" in done.stdout
