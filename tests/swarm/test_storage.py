"""A saved swarm is loaded with all its values."""

import json
import os
import struct

import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import (
    FitResult,
    Swarm,
    SwarmError,
    SwarmFileNotFoundError,
    SwarmWarning,
    SwarmWriteError,
)
from forecaster.swarm.checkpoints import restored
from forecaster.swarm.estimators import storage
from tests.messages import refuses, warns
from tests.swarm.test_swarm import Network, Widened, X, Y, same, trained, untrained

__all__ = ["trained", "untrained"]  # the fixtures


def test_what_is_saved_is_what_is_loaded(trained, tmp_path):
    file = tmp_path / "a.swarm"
    trained.save(file)
    again = Swarm.load(file, Network, loss=optax.squared_error)
    assert again.ids == trained.ids and same(again.hyperparams, trained.hyperparams)
    assert same(again.params, trained.params) and same(again.losses, trained.losses)
    on = trained.fit(X, Y, epochs=2), again.fit(X, Y, epochs=2)  # the optimiser's state too
    assert same(on[0].params, on[1].params)
    with refuses(SwarmError):
        Swarm.load(file, Network, loss=optax.squared_error, optimizer=optax.sgd)

    def wider(rngs):
        return nnx.Linear(3, 1, rngs=rngs)

    with refuses(SwarmError):
        Swarm.load(file, wider, loss=optax.squared_error)
    with refuses(SwarmError):
        Swarm.load(file, lambda rngs: Widened(rngs), loss=optax.squared_error)
    file.write_bytes(file.read_bytes()[:-5])
    with refuses(SwarmError):
        Swarm.load(file, Network, loss=optax.squared_error)
    with refuses(SwarmFileNotFoundError):
        Swarm.load(tmp_path / "none", Network, loss=optax.squared_error)


def test_another_loss_than_that_of_the_file_is_said(trained, tmp_path):
    trained.save(tmp_path / "a.swarm")
    with warns(SwarmWarning):
        Swarm.load(tmp_path / "a.swarm", Network, loss=optax.huber_loss)


def test_arrays_have_the_names_that_older_files_have(trained, tmp_path):
    from safetensors.numpy import load_file

    trained.save(tmp_path / "a.swarm")
    names = set(load_file(tmp_path / "a.swarm"))
    assert {"hyper/learning_rate", "state.key", "state.best_loss", "losses.train"} <= names
    assert {name.partition("/")[0].partition(".")[0] for name in names} == {
        "hyper", "state", "losses",
    }  # fmt: skip


def test_a_swarm_that_cannot_be_written_is_a_named_error(untrained, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with refuses(SwarmWriteError):
        untrained.save(tmp_path / "file" / "a.swarm")


VALUES = [None, True, -1, 0, 1e300, 2**63, 10**400, "x", [], {}, ["a"], ["m0"] * 9, "\ud800"]
SHAPES = [[], [9], [8], [2**40], [9, 0], [9, 2], [0, 2**62], [3, 3, 9]]
KINDS = ["F64", "F16", "BF16", "I32", "I64", "U32", "BOOL", "?"]


def parts(raw: bytes) -> tuple[dict, dict, bytes]:
    """Return a file's header, the fields of the swarm in it, and the arrays."""
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    return header, json.loads(header["__metadata__"]["swarm"]), raw[8 + size :]


def joined(header: dict, fields: str, arrays: bytes) -> bytes:
    text = json.dumps(header | {"__metadata__": {"swarm": fields}}).encode()
    return struct.pack("<Q", len(text)) + text + arrays


def mutate(raw: bytes, random: np.random.Generator) -> bytes:
    """Return the file with changed bytes, or with another header."""
    header, fields, arrays = parts(raw)
    choice = random.integers(6)
    if choice < 2:
        changed = bytearray(raw)
        for at in random.integers(len(raw) - len(arrays) if choice else len(raw), size=2):
            changed[at] = random.integers(256)
        return bytes(changed)
    names = [name for name in header if name != "__metadata__"]
    name = names[random.integers(len(names))]
    if choice == 2:
        fields[list(fields)[random.integers(len(fields))]] = VALUES[random.integers(len(VALUES))]
    elif choice == 3:
        header[name]["shape"] = SHAPES[random.integers(len(SHAPES))]
    elif choice == 4:
        header[name]["dtype"] = KINDS[random.integers(len(KINDS))]
    else:
        header[name], header[names[0]] = header[names[0]], header[name]
    return joined(header, json.dumps(fields) if random.random() < 0.95 else "[" * 10**5, arrays)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_mutant_is_a_swarm_or_a_swarm_error(trained, untrained, count, tmp_path, unchecked):
    file, sound = tmp_path / "a.swarm", 0
    trained.save(file)
    raw = file.read_bytes()
    for number in range(count):
        file.write_bytes(mutate(raw, np.random.default_rng(number)))
        try:
            header, hyperparams, arrays = storage.read(file)
            ids, seed = header.ids, header.seed
            assert all(values.shape == (9,) for values in hyperparams.values())
            held = restored(file, arrays, untrained._result.state, len(ids))
            result = FitResult(ids, *held, header.seconds)
            assert result.state.epoch.max() <= result.losses.train.shape[1]
            assert len(result.summary()) == len(ids) == 9 and isinstance(seed, int)
            sound += 1
        except SwarmError as error:
            assert str(error).strip() and len(str(error)) < 2000, number
        except Exception as error:
            raise AssertionError(f"mutant {number}: {error!r}") from error
    assert 0 < sound < count / 2


def test_a_file_asks_for_no_more_members_than_it_holds(trained, tmp_path):
    file = tmp_path / "a.swarm"
    trained.save(file)
    header, fields, arrays = parts(file.read_bytes())
    fields = json.dumps(fields | {"ids": [str(i) for i in range(10**5)]})
    file.write_bytes(joined(header, fields, arrays))
    with refuses(SwarmError):
        Swarm.load(file, Network, loss=optax.squared_error)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.swarm")
    with refuses(SwarmError):
        Swarm.load(tmp_path / "a.swarm", Network, loss=optax.squared_error)
