"""``ingest`` names columns that nothing learns from."""

import pandas as pd
import pytest
from click.testing import CliRunner

from forecaster.cli import main


@pytest.mark.parametrize(
    ("target", "extra", "said"), [("y", "temp", True), ("close", "open", False)]
)
def test_columns_that_are_not_learned_from_are_named_once(target, extra, said, tmp_path):
    days = pd.date_range("2026-01-01", periods=30).astype(str)
    frame = pd.DataFrame({"unique_id": "A", "ds": days, target: range(1, 31), extra: 1.5})
    frame = pd.concat([frame, frame.assign(unique_id="B")])
    frame.to_csv(tmp_path / "x.csv", index=False)
    source = ["ingest", "--source", f"files:{tmp_path / 'x.csv'}", "--home", str(tmp_path / "h")]
    result = CliRunner().invoke(main, source)
    assert result.output.count("Kept but not learned from: temp. ") == said
    assert "not learned" not in CliRunner().invoke(main, source).output
