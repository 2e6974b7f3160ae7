"""Time a hundred networks compared with one (Whitney 2021).

    python scripts/experiments/hundred_in_one.py [--quick] [--repeats 3]

Trains the small classifier of two spirals from the first example of that text, alone and with 9, 99
and 999 others, by a plain vmap and by this program. A GPU with idle cores trains a hundred in the
time of one; a CPU core has no idle parts, and only the overhead of each step is shared.
Source: W. Whitney, "Parallelizing neural networks on one GPU with JAX" (2021).
"""

import harness
import pandas as pd
from two_spirals import by_ours, by_vmap, spirals


def main() -> None:
    options = harness.parser(__doc__, repeats=3, epochs=300).parse_args()
    members = [1, 10, 100, 1000]
    if options.quick:
        members, options.repeats, options.epochs = [1, 10], 1, 4
    x, y = spirals(seed=options.seed)
    parts = []
    for count in members:
        runs = {
            "ours": by_ours((64,), count, options.epochs, x, y),
            "plain vmap": by_vmap((64,), count, options.epochs, x, y),
        }
        table, correct = harness.paired(runs, options.repeats)
        parts.append(table.assign(members=count, correct=table["method"].map(correct)))
    table = pd.concat(parts, ignore_index=True).assign(epochs=options.epochs)
    shown = harness.medians(table, ["method", "members"])
    shown["times one"] = shown["median"] / shown.groupby("method")["median"].transform("first")
    print(shown.round(3).to_string(index=False))
    one = shown.set_index(["method", "members"])["times one"]
    keys = pd.MultiIndex.from_frame(table[["method", "members"]])
    harness.write(options, table.assign(median_times_one=one.reindex(keys).to_numpy()))
    drawn, (place,) = harness.axes()
    harness.log_log(place, shown, "members", "one network and many", "seconds")
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
