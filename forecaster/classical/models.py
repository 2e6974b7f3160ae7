"""The classical models that forecast a series from its own past, each a row of one table.

The table is read without NumPy, to show its names to users. A model stands in a file of its own.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple


class Functions(NamedTuple):
    """How a model is fitted to series, and how it forecasts them.

    - ``fit``: fits it to rows without gaps, with a season in steps (1 for none); returns what it
      has learned of each row
    - ``ahead``: forecasts from every value of rows, which may go on after those that were learned
      from; takes the rows, what was learned of each, from how many of its first values, and the
      steps ahead; returns forecasts (time, horizon) of each row, NaN where there is no model
    - ``fitted``: the type of what is learned of a row, as files hold it
    - ``nothing``: what is learned of a row that is too short
    - ``fits``: whether what a file holds is sound
    """

    fit: Callable[..., Any]
    ahead: Callable[..., Any]
    fitted: Any
    nothing: Any = None
    fits: Callable[[Any], bool] = lambda fitted: True


class ClassicalModel(NamedTuple):
    """A model of the table.

    - ``module``: its file, whose ``MODEL`` are its :class:`Functions`
    - ``may_stand_alone``: whether users may choose it as the ``model`` of all series
    - ``blended``: whether it is a component of the combination of series of short seasons
    """

    module: str
    may_stand_alone: bool = True
    blended: bool = True

    @property
    def functions(self) -> Functions:
        """Its functions, whose file is imported now."""
        return importlib.import_module(self.module).MODEL


MODELS = {
    "ets": ClassicalModel("forecaster.classical.ets"),
    "theta": ClassicalModel("forecaster.classical.theta"),
    "ces": ClassicalModel("forecaster.classical.ces"),
}
"""The models by name; one more row is one more model."""
