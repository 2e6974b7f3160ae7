"""Keep what a blend is made of: terms of its median, factors of its width, and its components."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from forecaster.series.causal import Ahead, lagged, latest_mean
from forecaster.series.combination.blend import Combined, level_of
from forecaster.series.combination.components import Row
from forecaster.series.combination.nature import Nature
from forecaster.series.parts import Parts


class KeptBlend(NamedTuple):
    """Where the parts of one series' blend are kept.

    - ``number``: of the series among all
    - ``row``, ``nature``: its rows without gaps, in its unit, and its properties
    - ``steps``: those of the origins, among these rows
    """

    parts: Parts
    number: int
    row: Row
    nature: Nature
    steps: Int[np.ndarray, " origin"]

    def keep(self, made: Combined, middle: Ahead, width: Ahead) -> None:
        """Keep the components, terms and factors of a blend.

        ``middle``, ``width``: what is forecast; of counts mean and deviation
        """
        self._keep_components(made)
        # A level and a season apart from it would change against each other with each new row.
        season, horizon = (*self.nature.seasons, 1)[0], int(middle.shape[1])
        middle, width = middle[self.steps], width[self.steps]
        lately = lagged(self.row, season, horizon)[self.steps]
        usual = latest_mean(self.row, season)[self.steps][:, None]
        lately = np.where(np.isnan(lately), usual, lately)
        if self.nature.counts:
            blended, size = made.base[self.steps], np.sqrt(middle)
        else:
            level = level_of(self.row, self.nature.seasons)[self.steps]
            blended, size = middle, np.repeat(level[:, None], horizon, axis=1)
        terms = {
            "latest season": lately,
            "trend and smoothing": blended - lately,
            "running mean": middle - blended,
        }
        parts, unit = self.parts, self.nature.unit
        for name, values in terms.items():
            parts.put(parts.base, name, self.number, values * unit, 0.0)
        for name, values in {"level": size * unit, "usual error": width / size}.items():
            parts.put(parts.scale, name, self.number, values, 1.0)

    def _keep_components(self, made: Combined) -> None:
        """Keep what each component forecasts, and its weight among those that say anything."""
        parts, nature = self.parts, self.nature
        assert nature.blend is not None
        values = np.stack([each[self.steps] for each in made.components])
        weights = np.isfinite(values) * np.array(nature.blend.weights)[:, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = weights / weights.sum(0)
        names = nature.components.kind.names
        for name, own, weight in zip(names, values * nature.unit, weights, strict=True):
            parts.put(parts.components, name, self.number, own)
            parts.put(parts.weights, name, self.number, weight)
