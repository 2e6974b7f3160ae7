"""Check a GPU in about ten minutes: are its numbers right, and how fast is it?

    python scripts/benchmarks/gpu.py [--minutes 8] [--output FOLDER] [--quick]

Needs this tree, jax for the GPU, flax, optax, pandas and pyarrow; with torch it also measures
PyTorch. Runs these parts until the time is up, and names the parts that it left out:

1. numbers: outputs and gradients of LSTM and GRU, with masks, and whole fits with their forecasts,
   compared with the same computations on the machine's CPU in another process; with products in
   full precision, and in the default precision (TensorFloat-32 on a GPU that has it)
2. the published job: 500 LSTMs of 32 units, 1,000 epochs; some are trained, and the time is scaled.
   For comparison: PyTorch's cuDNN loop, and PyTorch's models all at once by ``torch.func`` under
   ``torch.compile``
3. the default fit of 500 simulated stocks, and their forecasts: on the GPU, and on all cores
4. swarms of 1 to 4,096 such networks, compared with a plain ``vmap`` and the loop
5. the speed suite of ``forecaster benchmark`` with 500 members

Writes ``gpu_numbers.csv``, ``gpu_speed.csv``, ``gpu_fit.csv`` and ``gpu.txt``, the printed summary.
On a machine without a GPU everything runs on the CPU, and ``--quick`` tries it in a few minutes, on
four devices with ``XLA_FLAGS=--xla_force_host_platform_device_count=4``. Exits with 1 if a number
is wrong.
"""

import argparse
import dataclasses
import io
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.benchmark import Job, available, compare
from forecaster.benchmark.comparison import suite

HERE = Path(__file__).parent
PUBLISHED = Job(hidden=32, lookback=20, batch=32, features=1, windows=352, members=500)
PUBLISHED_EPOCHS, PUBLISHED_SECONDS, PUBLISHED_TORCH = 1000, 224.51, 9560.44
MEMBERS = (1, 4, 16, 64, 256, 1024, 4096)
# In full precision only the order of rounding differs. By default products have 10 bits, over 50
# steps.
BOUNDS = {"highest": 1e-4, "default": 3e-2}


class Clock:
    """The clock of the whole check."""

    def __init__(self, minutes: float):
        self.began, self.seconds = time.perf_counter(), 60 * minutes

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.seconds - (time.perf_counter() - self.began)


def main() -> None:
    options = arguments()
    if options.reference:
        np.savez(options.reference, **numbers())  # pyright: ignore[reportArgumentType]
        return
    if options.fit:
        print(pd.DataFrame(default_fit(options.fit)).to_json(orient="records"))
        return
    clock = Clock(options.minutes)
    options.output.mkdir(parents=True, exist_ok=True)
    lines = [machine()]
    print(lines[0], flush=True)
    checked = pd.DataFrame(compared(options))
    checked.to_csv(options.output / "gpu_numbers.csv", index=False, float_format="%.3g")
    lines += [said_of_numbers(checked), said_of_fits(options), *measured(options, clock)]
    lines.append(f"{time.perf_counter() - clock.began:.0f} s in all")
    print(lines[-1])
    (options.output / "gpu.txt").write_text("\n".join(lines) + "\n")
    sys.exit(0 if checked["right"].all() else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=7.5, help="begin nothing after these")
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--quick", action="store_true", help="a try with tiny jobs")
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fit", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def machine() -> str:
    """Describe the machine in one line."""
    import jax

    from forecaster import swarm

    swarm.use_all_cores()  # before JAX starts
    kinds = sorted({device.device_kind for device in jax.devices()})
    return (
        f"{len(jax.devices())} x {', '.join(kinds)} ({jax.default_backend()}), {os.cpu_count()} "
        f"cores, Python {platform.python_version()}, jax {jax.__version__}, "
        f"{time.strftime('%Y-%m-%d')}"
    )


# Numbers


def numbers() -> dict[str, np.ndarray]:
    """Compute the results on the default device, by name."""
    import jax

    from forecaster import swarm

    swarm.use_all_cores()
    out: dict[str, np.ndarray] = {}
    for precision in BOUNDS:
        with jax.default_matmul_precision("default" if precision == "default" else "float32"):
            # If networks are independent, an error in one of them is not averaged away.
            start = "independent" if precision == "highest" else "pooled"
            for name, values in [*recurrences(), *a_fit(start)]:
                out[f"{precision}: {name}"] = np.asarray(values)
    return out


def recurrences() -> Iterator[tuple[str, Any]]:
    """Compute outputs and gradients of both cells, with a mask."""
    import jax
    import jax.numpy as jnp

    from forecaster.swarm.recurrence import jax_gru, jax_lstm

    random = np.random.default_rng(0)
    steps, batch, features, hidden = 50, 32, 5, 32

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 0.3, shape).astype(np.float32)

    x = draw(steps, batch, features)
    valid = np.ones((steps, batch), np.float32)
    valid[:7, ::3] = 0
    cells = {
        "LSTM": (jax_lstm, (draw(features + hidden, 4 * hidden), draw(4 * hidden))),
        "GRU": (jax_gru, (draw(features + hidden, 3 * hidden), draw(3 * hidden), draw(hidden))),
    }
    for name, (cell, weights) in cells.items():

        def run(weights: tuple[np.ndarray, ...], x: np.ndarray, cell: Callable[..., Any] = cell):
            hidden_states = cell(*weights, x, valid)
            return jnp.mean(jnp.sin(3 * hidden_states)), hidden_states

        (_, states), grads = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))(
            weights, x
        )
        yield f"{name}, states", states
        for number, grad in enumerate(jax.tree.leaves(grads)):
            yield f"{name}, gradient {number}", grad


def a_fit(start: str) -> Iterator[tuple[str, Any]]:
    """Fit a few simulated series; return losses and forecasts."""
    import forecaster as fc

    random = np.random.default_rng(1)
    days = pd.bdate_range("2020-01-01", periods=500)
    closes = 100 * np.exp(0.01 * random.standard_t(5, (6, len(days))).cumsum(1))
    parts = [
        pd.DataFrame({"ticker": f"S{n}", "date": days, "close": close})
        for n, close in enumerate(closes)
    ]
    panel = fc.load_panel(pd.concat(parts))
    model = fc.fit(panel, fc.Config(epochs=5, start=start))
    yield f"fit {start}, validation loss", model.report["validation_loss"]
    frame = fc.predict(model, panel)
    yield f"fit {start}, forecasts", frame[["LSTM", "LSTM-lo-80", "LSTM-hi-80"]]


def compared(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield a row per result: its difference from the CPU's, relative to the largest value."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cpu.npz"
        # One device without the compiled kernel: the same program as on the GPU.
        settings = {"JAX_PLATFORMS": "cpu", "FORECASTER_KERNEL": "off", "XLA_FLAGS": ""}
        script = [sys.executable, str(Path(__file__).resolve()), "--reference", str(path)]
        with subprocess.Popen(script, env={**os.environ, **settings}) as other:
            here = numbers()  # computed while the CPU's process works
        if other.returncode:
            raise SystemExit("the CPU's numbers could not be made; see above")
        with np.load(path) as kept:
            reference = dict(kept)
    for name, values in reference.items():
        difference = float(np.abs(here[name] - values).max() / np.abs(values).max())
        bound = BOUNDS[name.split(":")[0]]
        yield {
            "result": name,
            "difference": difference,
            "bound": bound,
            "right": bool(difference <= bound),
        }


def said_of_numbers(table: pd.DataFrame) -> str:
    """Summarise the check of the numbers in one line."""
    wrong = table[~table["right"]]
    worst = table.groupby(table["result"].str.split(":").str[0])["difference"].max()
    parts = ", ".join(f"{name} {value:.1e}" for name, value in worst.items())
    line = f"numbers: {len(table)} results, largest relative difference from the CPU: {parts}"
    if len(wrong):
        line += f"; WRONG: {', '.join(wrong['result'])}"
    print(line, flush=True)
    return line


# The default fit


def default_fit(count: int) -> Iterator[dict[str, object]]:
    """Fit ``count`` simulated stocks of five years twice, and forecast them; yield a row per fit.

    Only the first fit compiles.
    """
    import jax

    import forecaster as fc
    from forecaster import swarm

    swarm.use_all_cores()
    random = np.random.default_rng(2)
    days = pd.bdate_range("2019-01-01", periods=1250)
    closes = 100 * np.exp(0.01 * random.standard_t(5, (count, len(days))).cumsum(1))
    names = np.repeat([f"S{n}" for n in range(count)], len(days))
    frame = pd.DataFrame({"ticker": names, "date": np.tile(days, count), "close": closes.ravel()})
    panel = fc.load_panel(frame)
    for call in ("first", "second"):
        began = time.perf_counter()
        model = fc.fit(panel)
        fitted = time.perf_counter()
        forecasts = fc.predict(model, panel)
        yield {
            "device": jax.devices()[0].device_kind,
            "devices": len(jax.devices()),
            "series": count,
            "call": call,
            "fit_seconds": fitted - began,
            "predict_seconds": time.perf_counter() - fitted,
            "mean_band": float((forecasts["LSTM-hi-80"] / forecasts["LSTM-lo-80"] - 1).mean()),
        }


def said_of_fits(options: argparse.Namespace) -> str:
    """Time the default fit on the default device and on the CPU; summarise it in one line."""
    script = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--fit",
        str(8 if options.quick else 500),
    ]
    rows = []
    for settings in ({}, {"JAX_PLATFORMS": "cpu"}):
        made = subprocess.run(
            script, env={**os.environ, **settings}, capture_output=True, text=True
        )
        if made.returncode:
            print(made.stderr[-2000:], flush=True)
            return f"default fit: failed ({settings or 'default device'})"
        rows += pd.read_json(io.StringIO(made.stdout.strip().splitlines()[-1])).to_dict("records")
    pd.DataFrame(rows).to_csv(options.output / "gpu_fit.csv", index=False, float_format="%.6g")
    line = "default fit: " + ", ".join(
        f"{row['devices']} x {row['device']} {row['call']} {row['fit_seconds']:.1f} s, "
        f"forecasts {row['predict_seconds']:.1f} s"
        for row in rows
    )
    print(line, flush=True)
    return line


# Speed


def measured(options: argparse.Namespace, clock: Clock) -> Iterator[str]:
    """Measure one job after another while there is time; yield a line for each."""
    import jax

    kind = jax.devices()[0].device_kind
    rows: list[dict[str, object]] = []
    left_out: list[str] = []
    longest = 0.0
    for name, work in works(options):
        if clock.left < 1.3 * longest:
            left_out.append(name)
            continue
        began = time.perf_counter()
        try:
            found = work()
        except Exception as error:
            line = f"{name}: failed, {type(error).__name__}: {str(error)[:200]}"
        else:
            rows += [{"device": kind, "work": name, **row} for row in found]
            line = f"{name}: " + ", ".join(said(row) for row in found)
        longest = max(longest if "compile" not in name else 0.0, time.perf_counter() - began)
        print(line, flush=True)
        yield line
        pd.DataFrame(rows).to_csv(
            options.output / "gpu_speed.csv", index=False, float_format="%.6g"
        )
    if left_out:
        line = f"no time for: {', '.join(left_out)}"
        print(line, flush=True)
        yield line


def said(row: dict[str, Any]) -> str:
    """Describe a method's time in words."""
    text = f"{row['method']} {1e3 * row['seconds_per_model_epoch']:.3g} ms a model and epoch"
    return text if row["method"] == "ours" else f"{text} ({row['ratio_to_ours']:.3g} of ours)"


def works(
    options: argparse.Namespace,
) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    """Yield the jobs to measure, the most important first."""
    quick = options.quick
    published = dataclasses.replace(PUBLISHED, epochs=2 if quick else 50)
    if quick:
        published = dataclasses.replace(published, members=8, windows=64)
    yield "published job", lambda: published_job(published)
    for count in MEMBERS[:2] if quick else MEMBERS:
        job = dataclasses.replace(published, members=count, epochs=2 if quick else 10)
        yield f"{count} networks", lambda job=job: by_methods(job, ["vmap", "torch"])
    for job in [] if quick else suite():
        yield f"suite, {job}", lambda job=job: by_methods(job, ["vmap", "torch"])
    yield "torch.func under torch.compile", lambda: compiled_ensemble(published)


def by_methods(job: Job, methods: list[str]) -> list[dict[str, Any]]:
    """Time a job by our method, and by each other method that can run here."""
    names, _ = available(methods)
    return [dataclasses.asdict(result) for result in compare(job, names, repeats=3)]


def published_job(job: Job) -> list[dict[str, Any]]:
    """Time the published job, scaled to 500 models and 1,000 epochs."""
    rows = by_methods(job, ["torch"])
    for row in rows:
        each = row["seconds_per_model_epoch"]
        row["seconds_for_the_job"] = each * PUBLISHED.members * PUBLISHED_EPOCHS
        row["published"] = {"ours": PUBLISHED_SECONDS, "torch": PUBLISHED_TORCH}[row["method"]]
    return rows


def compiled_ensemble(job: Job) -> list[dict[str, Any]]:
    """Train all models of a job at once in PyTorch: ``torch.func`` under ``torch.compile``."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    step, state, batches = ensemble_step(job, device)
    step = torch.compile(step)
    seconds = []
    for _ in range(3):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for x, y in batches:
            loss = step(state, x, y)
        float(loss.mean())
        seconds.append(time.perf_counter() - began)
    ours = compare(job, [], repeats=2)[0]
    each = min(seconds[1:]) / job.members
    first = {"seconds_to_compile": seconds[0] - min(seconds[1:])}
    return [
        dataclasses.asdict(ours),
        {
            **dataclasses.asdict(ours),
            "method": "torch.compile",
            "seconds_per_model_epoch": each,
            "ratio_to_ours": each / ours.seconds_per_model_epoch,
            "gflops": job.flops / each / 1e9,
            "loss_difference": float("nan"),
            **first,
        },
    ]


def ensemble_step(job: Job, device: str) -> tuple[Callable[..., Any], Any, list[Any]]:
    """Return a step of Adam for all models of a job, its state, and the batches of an epoch."""
    import torch

    members = range(job.members)
    weights = [job.weights(member) for member in members]
    params = {
        name: torch.tensor(np.stack([one[name] for one in weights]), device=device)
        for name in weights[0]
    }
    x, y = (
        torch.tensor(np.stack(part), device=device)
        for part in zip(*(job.examples(member) for member in members), strict=True)
    )
    state = [params, *({k: torch.zeros_like(v) for k, v in params.items()} for _ in range(2)), 0]
    batches = [(x[:, rows], y[:, rows]) for rows in torch.tensor(job.order(), device=device)]

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = c = x.new_zeros(x.shape[0], job.hidden)
        for t in range(job.lookback):
            gates = torch.cat([x[:, t], h], 1) @ params["kernel0"] + params["bias0"]
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        value = ((h @ params["out"] + params["out_bias"] - y) ** 2).mean()
        return value, value

    grad = torch.func.vmap(torch.func.grad(loss, has_aux=True))

    def step(state: Any, x: Any, y: Any) -> Any:
        params, first, second, _ = state
        state[3] += 1
        grads, losses = grad(params, x, y)
        with torch.no_grad():
            for name in params:
                first[name].lerp_(grads[name], 0.1)
                second[name].lerp_(grads[name] ** 2, 0.001)
                size = first[name] / (second[name].sqrt() + 1e-8)
                params[name] -= 1e-3 * size
        return losses

    return step, state, batches


if __name__ == "__main__":
    main()
