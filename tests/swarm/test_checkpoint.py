"""An interrupted and resumed fit ends with the bits of an uninterrupted one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from forecaster.swarm import Checkpoint, SwarmError
from tests.messages import refuses
from tests.slow import slow
from tests.swarm.test_fitting import HYPERPARAMS, IDS, TASKS, data, run, same

__all__ = ["data"]  # the fixture

LONG: dict[str, Any] = {"epochs": 40, "patience": np.arange(len(IDS)) % 4 + 2}


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("memory", [None, 1])  # all members at once; a few at a time
def test_a_fit_goes_on_where_it_was_interrupted(kind, memory, data, tmp_path):
    whole = run(TASKS[kind], data, **LONG, memory=memory)
    path = tmp_path / "fit.checkpoint"
    blocks = 0

    def interrupt(progress):
        nonlocal blocks
        blocks += 1
        if blocks % 2 == 0:
            raise KeyboardInterrupt

    resumed, attempt = None, 0
    for attempt in range(40):
        try:
            resumed = run(
                TASKS[kind], data, **LONG, memory=memory, on_progress=interrupt,
                checkpoint=Checkpoint(path, resume=attempt > 0),
            )  # fmt: skip
            break
        except KeyboardInterrupt:
            continue
    assert resumed is not None and attempt > 0
    assert same(resumed.params, whole.params)
    for name in ("status", "epochs", "best_epoch", "best_loss"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    for a, b in zip(resumed.losses[:2], whole.losses[:2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_another_fit_is_refused(data, tmp_path):
    path = tmp_path / "fit.checkpoint"
    task = TASKS["Perceptron"]
    resume = Checkpoint(path, resume=True)
    with refuses(SwarmError) as missing:
        run(task, data, checkpoint=resume)
    assert isinstance(missing.value, FileNotFoundError)
    run(task, data, checkpoint=Checkpoint(path, every=0))
    again = run(task, data, checkpoint=resume)  # nothing left to do
    assert same(again.params, run(task, data).params)
    for change in (
        {"seed": 6},
        {"hyperparams": HYPERPARAMS | {"clip": 2.0}},
        {"patience": 4},
        {"ids": [*IDS[:-1], "another"]},
        {"data": data._replace(targets=data.targets + 1)},
    ):
        with refuses(SwarmError):
            changed: Any = {"data": data, "checkpoint": resume} | change
            run(task, **changed)
    path.write_bytes(path.read_bytes()[:-10])
    with refuses(ValueError):
        run(task, data, checkpoint=resume)


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from forecaster import swarm
from tests.swarm.test_fitting import TASKS, make_data, run

swarm.keep_compiled(Path(sys.argv[3]))
path, out = Path(sys.argv[1]), Path(sys.argv[2])
checkpoint = swarm.Checkpoint(path, every=0, resume=path.exists())
epochs = int(sys.argv[4])
result = run(
    TASKS["SmallLSTM"], make_data(), epochs=epochs, patience=epochs, checkpoint=checkpoint, block=1
)
leaves = __import__("jax").tree.leaves(result.params)
save_file({str(i): np.ascontiguousarray(leaf) for i, leaf in enumerate(leaves)}, out)
"""


def kill_and_resume(tmp_path, cache, kills: int, seed: int, epochs: int) -> dict:
    """Train in processes that are killed at random moments, until one reaches the end.

    A process is killed after at most five more checkpoints and a while, or while it starts.
    """
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    draw = random.Random(seed)
    for _ in range(kills):
        process = start_training(checkpoint, out, cache, epochs)
        saves = draw.choice([0, 1, 2, 5]) if checkpoint.exists() else 1
        seen = written(checkpoint)
        if not saves:
            time.sleep(draw.uniform(0.1, 2))  # while it starts, or loads, or compiles
        while saves and process.poll() is None:
            if written(checkpoint) != seen:
                seen, saves = written(checkpoint), saves - 1
            time.sleep(0.0005)
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.3))
        time.sleep(draw.uniform(0, 0.005))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "ended before it was killed"
    assert start_training(checkpoint, out, cache, epochs).wait() == 0
    return load_file(out)


def start_training(checkpoint, out, cache, epochs: int) -> subprocess.Popen:
    command = [sys.executable, "-c", SCRIPT, str(checkpoint), str(out), str(cache), str(epochs)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path.cwd())})


def written(path) -> tuple[int, int] | None:
    """The part of a file's status that changes when the file is replaced."""
    try:
        return path.stat().st_ino, path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


@pytest.mark.parametrize(("kills", "epochs"), [(1, 3_000), slow(20, 15_000)])
def test_killed_and_resumed_is_unharmed(data, tmp_path, compiled, kills, epochs):
    leaves = kill_and_resume(tmp_path, compiled, kills, seed=0, epochs=epochs)
    whole = run(TASKS["SmallLSTM"], data, epochs=epochs, patience=epochs).params
    for number, leaf in enumerate(jax.tree.leaves(whole)):
        np.testing.assert_array_equal(leaves[str(number)], leaf)
