"""Measure size and loss of CRPS of smaller model files, for the model of 505 stocks.

    python scripts/experiments/smaller_models.py --source files:prices.parquet [--quick]

Fits this program's default model, writes it by each method of `forecaster compress`, and compares
them on the validation span. There is no published claim; the question is whether small networks can
be made smaller at no cost.
"""

import tempfile
from pathlib import Path

import harness

import forecaster as fc
from forecaster.storage import load, save
from forecaster.storage.model import compression


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
    table = compression.compare(model, panel.masked(forecasting=True))
    print(table.round(4).to_string(index=False))
    print(f"recommended: {compression.recommend(table) or 'nothing'}")
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
    place.axhline(100 * compression.MOST_LOSS, color="#bbbbbb", lw=1)
    place.set(yscale="log", xlabel="file, MB", ylabel="CRPS lost, %, at least 0.0001",
              title=f"{len(model.ids)} networks; below the line it is for nothing")  # fmt: skip
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
