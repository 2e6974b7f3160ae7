"""One series' network in all kinds of company, as hashes: ``python -m tests.company FOLDER TUNE``.

A process of its own, since which code runs the recurrence is decided once, by FORECASTER_KERNEL.
Prints a line for each kind of company: its name and the hash of the series' forecast.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

import forecaster as fc
from forecaster import swarm
from forecaster.swarm.native import kernel_status

NAME, OTHERS = "KO", ["AAPL", "MSFT", "IBM", "XOM"]
COMPANIES = {"alone": [NAME], "together": [*OTHERS, NAME], "first": [NAME, *OTHERS[:2]]}
# Pooled starts are learned from all series, so there company is meant to count.
CONFIG = fc.Config(
    hidden=4, lookback=30, burn_in=10, horizon=3, validation=60, epochs=12, patience=12,
    learning_rate=1e-2, start="independent", members=1,
)  # fmt: skip


def load() -> fc.Panel:
    """The series and its company."""
    return fc.load_panel("simulated", [*OTHERS, NAME], start="2024-01-01")


def forecast(model: fc.Model, panel: fc.Panel) -> str:
    """The hash of all numbers that are forecast for the series."""
    frame = fc.predict(model, panel.only([NAME]))
    numbers = np.ascontiguousarray(frame.select_dtypes("number").to_numpy())
    return hashlib.sha256(numbers.tobytes()).hexdigest()[:16]


def interrupted(panel: fc.Panel, path: Path, *, tune: bool) -> fc.Model:
    """A fit that is interrupted at each other look, and resumed until it ends."""
    looks = 0

    def interrupt(progress: object) -> None:
        nonlocal looks
        looks += 1
        if looks % 2 == 1:
            raise KeyboardInterrupt

    for attempt in range(200):
        checkpoint = swarm.Checkpoint(path, every=0.0, resume=attempt > 0)
        try:
            model = fc.fit(
                panel, CONFIG, seed=1, tune=tune, checkpoint=checkpoint, on_progress=interrupt
            )
            assert attempt > 0, "it was never interrupted"
            return model
        except KeyboardInterrupt:
            continue
    raise AssertionError("it came to no end")


def say(*words: str) -> None:
    """A line of output."""
    sys.stdout.write(" ".join(words) + "\n")


def main(folder: Path, *, tune: bool) -> None:
    """Fit the series alone, in company, in another order, and with interruptions."""
    swarm.use_all_cores()
    panel = load()
    say("kernel", kernel_status()[0] or "off")
    for kind, names in COMPANIES.items():
        model = fc.fit(panel.only(names), CONFIG, seed=1, tune=tune)
        say(kind, forecast(model, panel))
    model = interrupted(panel, folder / "checkpoint", tune=tune)
    say("resumed", forecast(model, panel))


if __name__ == "__main__":
    main(Path(sys.argv[1]), tune=sys.argv[2] == "tune")
