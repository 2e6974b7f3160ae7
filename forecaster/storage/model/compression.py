"""Compare smaller files of a model by size and accuracy.

Weights are written as whole numbers, in half precision, or without the smallest ones. Int8: each
column of a matrix has its own scale, its largest weight over 127, symmetric and per channel as in
Jacob et al. (2018), arXiv 1712.05877. Pruning leaves out the smallest weights of each matrix (Han
et al. 2015, arXiv 1506.02626), without training again. Arithmetic stays in float32: only the file
is smaller, a forecast is not faster.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from forecaster.forecasting import (
    Model,
    bounds_of,
    distributions,
    match_panel,
    models_of,
    predict,
    targets_at,
)
from forecaster.series import Panel, Transformed
from forecaster.storage.model.encoding import Encoding
from forecaster.storage.model.files import load_whole, save

METHODS = {
    "none": Encoding(),
    "float16": Encoding("float16"),
    "int8": Encoding("int8"),
    "pruned-50": Encoding(pruned=0.5),
    "pruned-80": Encoding(pruned=0.8),
    "int8-pruned-50": Encoding("int8", 0.5),
    "small": Encoding("int8", scores="float16"),
}
"""The encodings of a model's weights; ``small`` also writes in half precision the scores that bands
are calibrated on."""

MOST_LOSS = 1e-3  # largest relative loss in mean CRPS of a recommended method
MOST_LOSS_OF_ONE = 1e-2  # the same at the 99th percentile of series
LEAST_SAVING = 0.1  # smallest relative saving of the file


def compare(
    model: Model, panel: Panel, on_method: Callable[[int, int], None] | None = None
) -> pd.DataFrame:
    """Compare the size and the accuracy of all :data:`METHODS`, a row each.

    - ``bytes``: size of the arrays; ``size``: their size relative to ``none``
    - ``crps``: relative to ``none``, on the latest ``validation`` rows of the panel; the mean over
      series. ``crps_99``: its 99th percentile over series
    - ``width_99``: relative change of a series' 80 % band, the 99th percentile over series
    - ``recommended``: whether the file is smaller by a tenth or more, the mean CRPS worse by 0.1 %
      at most, and ``crps_99`` and ``width_99`` by 1 % at most

    ``on_method(done, total)`` is called after each method.
    """
    panel = match_panel(model, panel)
    held = _held_back(model, panel)  # the same for all methods
    plain, widths = _crps(model, panel, held), _widths(predict(model, panel))
    rows: list[tuple[str, int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, encoding) in enumerate(METHODS.items()):
            run = save(model, Path(folder) / name, encoding)
            smaller = load_whole(run)
            ratio = _crps(smaller, panel, held) / plain
            wider = np.abs(_widths(predict(smaller, panel)) / widths - 1)
            size = sum(path.stat().st_size for path in run.glob("*.safetensors"))
            worst, widest = (float(np.quantile(each, 0.99)) for each in (ratio, wider))
            rows.append((name, size, float(ratio.mean()), worst, widest))
            if on_method:
                on_method(number + 1, len(METHODS))
    table = pd.DataFrame(rows, columns=["method", "bytes", "crps", "crps_99", "width_99"])
    table["size"] = table["bytes"] / table["bytes"].iloc[0]
    table["recommended"] = (
        (table["size"] <= 1 - LEAST_SAVING)
        & (table["crps"] <= 1 + MOST_LOSS)
        & (table["crps_99"] <= 1 + MOST_LOSS_OF_ONE)
        & (table["width_99"] <= MOST_LOSS_OF_ONE)
    )
    return table


def recommend(table: pd.DataFrame) -> str | None:
    """Return the recommended method with the smallest file; None where there is none."""
    worth = table[table["recommended"]]
    return None if worth.empty else str(worth.sort_values("bytes")["method"].iloc[0])


def _widths(forecast: pd.DataFrame) -> np.ndarray:
    """Return the widths of the 80 % bands, (row,)."""
    low, high = bounds_of(models_of(forecast)[0], 80)
    return (forecast[high] - forecast[low]).to_numpy()


def _held_back(model: Model, panel: Panel) -> tuple[Transformed, np.ndarray]:
    """Transform the panel; return it with the latest ``validation`` origins (series, origin)."""
    transformed = model.transform.apply(panel, model.config.horizon)
    steps = transformed.z.shape[1]
    span = min(model.config.longest_validation, steps - model.config.rows_to_forecast)
    return transformed, np.tile(np.arange(steps - span, steps), (len(panel.ids), 1))


def _crps(model: Model, panel: Panel, held: tuple[Transformed, np.ndarray]) -> np.ndarray:
    """Return the mean CRPS of each series in standardised units, over origins and horizons.

    ``held``: from :func:`_held_back`. The CRPS of a point forecast is its absolute error.
    """
    transformed, origins = held
    networks = model.networks.only(panel.ids)
    mixture = distributions(networks, transformed, origins)
    targets = targets_at(transformed, origins)[..., None]
    crps = student_t_crps(targets, mixture.location, mixture.scale, mixture.dof)
    return np.nanmean(crps, axis=(1, 2, 3))


def student_t_crps(
    actual: ArrayLike, location: ArrayLike, scale: ArrayLike, dof: ArrayLike
) -> np.ndarray:
    """Return the CRPS of Student-t distributions in closed form, elementwise.

    Infinite degrees of freedom mean a point, whose CRPS is the absolute error.

    Jordan, Krüger & Lerch (2019), Journal of Statistical Software 90(12).
    """
    from scipy.special import beta, stdtr
    from scipy.stats import t

    dof, scale = np.asarray(dof), np.asarray(scale)
    z = np.subtract(actual, location) / scale
    if np.isinf(dof).all():
        return np.abs(z) * scale
    constant = 2 * np.sqrt(dof) * beta(0.5, dof - 0.5) / ((dof - 1) * beta(0.5, dof / 2) ** 2)
    spread = 2 * t.pdf(z, dof) * (dof + z**2) / (dof - 1)
    return scale * (z * (2 * stdtr(dof, z) - 1) + spread - constant)
