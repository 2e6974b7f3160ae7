"""With the defaults, no panel is forecast worse than by its last value or the season before."""

import pytest

from tests.conftest import script

zoo = script("accuracy/zoo.py")

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
