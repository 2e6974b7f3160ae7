"""With the defaults, no panel is forecast worse than by its last value or the season before."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "accuracy" / "zoo.py"

spec = importlib.util.spec_from_file_location("zoo", SCRIPT)
assert spec is not None and spec.loader is not None
zoo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(zoo)

WALKS = [name for name in zoo.CASES if name.startswith("walks")]


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.CASES)
def test_any_panel_is_forecast_as_well_as_by_nothing(name):
    row = zoo.measured(zoo.CASES[name])
    assert row["worst"] <= 1.02, row
    assert 0.70 <= row["coverage"] <= 0.88, row


def test_the_zoo_has_walks_of_every_frequency():
    assert len(WALKS) >= 10
    panels = [zoo.CASES[name].make() for name in WALKS]
    assert len({panel["ds"].iloc[:3].diff().iloc[-1] for panel in panels}) >= 8
