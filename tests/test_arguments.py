"""Arguments of the public functions: what is of another type is one clear error."""

from typing import Any, cast

import pytest

import forecaster as fc
from forecaster.errors import UsageError


@pytest.mark.parametrize("settings", [{}, {"hidden": 4}, "lstm"])
def test_settings_are_a_config(panel, settings):
    with pytest.raises(UsageError, match=r"config: expected a forecaster\.Config; got (dict|str)"):
        fc.fit(panel, settings)
    with pytest.raises(UsageError, match=r"forecaster\.Config\(\*\*settings\)"):
        fc.cross_validation(panel, settings)


@pytest.mark.parametrize(("name", "number"), [("n_windows", 2.5), ("step_size", "3")])
def test_cutoffs_are_counted_in_whole_numbers(panel, config, name, number):
    options = cast(dict[str, Any], {name: number})
    with pytest.raises(UsageError, match=f"{name}: expected a whole number; got {number!r}"):
        fc.cross_validation(panel, config, **options)


@pytest.mark.parametrize("model", ["m", None])
def test_a_model_is_not_its_name(panel, model):
    for call in (fc.predict, fc.simulate):
        with pytest.raises(UsageError, match=r"model: expected a forecaster\.Model; got .*load"):
            call(model, panel)


@pytest.mark.parametrize("level", [["a"], "80 %", [[80], [95, 90]], [80j]])
def test_levels_are_numbers(panel, config, level):
    with pytest.raises(UsageError, match="level: expected percent, such as 80; got"):
        fc.cross_validation(panel, config, level=level)
