"""Measure size and loss of CRPS of smaller model files, for the model of 505 stocks.

    python scripts/experiments/smaller_models.py --source files:prices.parquet [--quick]

Fits this program's default model, writes it by each method of `fit --encoding`, and compares them
on the validation span. There is no published claim; the question is whether small networks can
be made smaller at no cost.
"""

import tempfile
from pathlib import Path

import harness
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import beta, stdtr
from scipy.stats import t

import forecaster as fc
from forecaster.forecasting import at_origins, bounds_of, distributions, match_panel, models_of
from forecaster.series import Transformed
from forecaster.storage import METHODS, load, save

MOST_LOSS = 1e-3  # largest relative loss in mean CRPS of a recommended encoding
MOST_LOSS_OF_ONE = 1e-2  # the same at the 99th percentile of series
LEAST_SAVING = 0.1  # smallest relative saving of the file


def main() -> None:
    parser = harness.parser(__doc__, series=0)
    parser.add_argument("--source", default="simulated", help="simulated or files:PATH")
    options = parser.parse_args()
    config = fc.Config()
    if options.quick:
        options.series, config = 3, fc.Config(hidden=4, epochs=2, validation=100)
    panel = fc.load_panel(options.source)
    if options.series:
        panel = panel.only(panel.ids[: options.series])
    with tempfile.TemporaryDirectory() as folder:
        model = load(save(fc.fit(panel, config, seed=options.seed), Path(folder) / "model"))
    table = compare(model, panel.masked(forecasting=True))
    print(table.round(4).to_string(index=False))
    harness.write(
        options, table.assign(series=len(model.ids), source=options.source.split("/")[-1])
    )
    drawn, (place,) = harness.axes()
    for row in table.to_dict("records"):
        loss = max(100 * (row["crps"] - 1), 1e-4)
        colour = harness.COLOURS[0] if row["recommended"] else harness.COLOURS[2]
        place.plot(row["bytes"] / 1e6, loss, "o", color=colour)
        place.annotate(str(row["method"]), (row["bytes"] / 1e6, loss), xytext=(4, 4),
                       textcoords="offset points", fontsize=8)  # fmt: skip
    place.axhline(100 * MOST_LOSS, color="#bbbbbb", lw=1)
    place.set(yscale="log", xlabel="file, MB", ylabel="CRPS lost, %, at least 0.0001",
              title=f"{len(model.ids)} networks; below the line it is for nothing")  # fmt: skip
    harness.figure(options, drawn)


def compare(model: fc.Model, panel: fc.Panel) -> pd.DataFrame:
    """Compare the size and the accuracy of all encodings, a row each.

    - ``bytes``: size of the arrays; ``size``: their size relative to ``none``
    - ``crps``: relative to ``none``, on the latest ``validation`` rows of the panel; the mean over
      series. ``crps_99``: its 99th percentile over series
    - ``width_99``: relative change of a series' 80 % band, the 99th percentile over series
    - ``recommended``: whether the file is smaller by a tenth or more, the mean CRPS worse by 0.1 %
      at most, and ``crps_99`` and ``width_99`` by 1 % at most
    """
    panel = match_panel(model, panel)
    held = _held_back(model, panel)  # the same for all methods
    plain, widths = _crps(model, panel, held), _widths(fc.predict(model, panel))
    rows: list[tuple[str, int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, encoding in METHODS.items():
            run = save(model, Path(folder) / name, encoding)
            smaller = load(run)
            ratio = _crps(smaller, panel, held) / plain
            wider = np.abs(_widths(fc.predict(smaller, panel)) / widths - 1)
            size = sum(path.stat().st_size for path in run.glob("*.safetensors"))
            worst, widest = (float(np.quantile(each, 0.99)) for each in (ratio, wider))
            rows.append((name, size, float(ratio.mean()), worst, widest))
    table = pd.DataFrame(rows, columns=["method", "bytes", "crps", "crps_99", "width_99"])
    table["size"] = table["bytes"] / table["bytes"].iloc[0]
    table["recommended"] = (
        (table["size"] <= 1 - LEAST_SAVING)
        & (table["crps"] <= 1 + MOST_LOSS)
        & (table["crps_99"] <= 1 + MOST_LOSS_OF_ONE)
        & (table["width_99"] <= MOST_LOSS_OF_ONE)
    )
    return table


def _widths(forecast: pd.DataFrame) -> np.ndarray:
    """Return the widths of the 80 % bands, (row,)."""
    low, high = bounds_of(models_of(forecast)[0], 80)
    return (forecast[high] - forecast[low]).to_numpy()


def _held_back(model: fc.Model, panel: fc.Panel) -> tuple[Transformed, np.ndarray]:
    """Transform the panel; return it with the latest ``validation`` origins (series, origin)."""
    transformed = model.transform.apply(panel, model.config.horizon)
    steps = transformed.z.shape[1]
    span = min(model.config.longest_validation, steps - model.config.rows_to_forecast)
    return transformed, np.tile(np.arange(steps - span, steps), (len(panel.ids), 1))


def _crps(model: fc.Model, panel: fc.Panel, held: tuple[Transformed, np.ndarray]) -> np.ndarray:
    """Return the mean CRPS of each series in standardised units, over origins and horizons.

    ``held``: from :func:`_held_back`
    """
    transformed, origins = held
    networks = model.networks.only(panel.ids)
    targets = at_origins(transformed.targets(), origins)
    made = distributions(networks, transformed, origins, targets)
    crps = student_t_crps(targets, made.location, made.scale, made.dof)
    return np.nanmean(crps, axis=(1, 2))


def student_t_crps(
    actual: ArrayLike, location: ArrayLike, scale: ArrayLike, dof: ArrayLike
) -> np.ndarray:
    """Return the CRPS of Student-t distributions in closed form, elementwise.

    Jordan, Krüger & Lerch (2019), Journal of Statistical Software 90(12).
    """
    dof, scale = np.asarray(dof), np.asarray(scale)
    z = np.subtract(actual, location) / scale
    constant = 2 * np.sqrt(dof) * beta(0.5, dof - 0.5) / ((dof - 1) * beta(0.5, dof / 2) ** 2)
    spread = 2 * t.pdf(z, dof) * (dof + z**2) / (dof - 1)
    return scale * (z * (2 * stdtr(dof, z) - 1) + spread - constant)


if __name__ == "__main__":
    main()
