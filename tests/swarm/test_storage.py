"""A swarm in a file: what is saved is what is loaded."""

import optax
import pytest
from flax import nnx

from forecaster.errors import WriteError
from forecaster.swarm import Swarm, SwarmError
from tests.swarm.test_swarm import Network, Widened, X, Y, same, trained, untrained

__all__ = ["trained", "untrained"]  # the fixtures


def test_what_is_saved_is_what_is_loaded(trained, tmp_path):
    file = tmp_path / "a.swarm"
    trained.save(file)
    again = Swarm.load(file, Network, loss=optax.squared_error)
    assert again.ids == trained.ids and same(again.hyperparams, trained.hyperparams)
    assert same(again.params, trained.params) and same(again.losses, trained.losses)
    on = trained.fit(X, Y, epochs=2), again.fit(X, Y, epochs=2)  # the optimiser's memory too
    assert same(on[0].params, on[1].params)
    with pytest.raises(SwarmError, match="of another model or optimiser"):
        Swarm.load(file, Network, loss=optax.squared_error, optimizer=optax.sgd)

    def wider(rngs):
        return nnx.Linear(3, 1, rngs=rngs)

    with pytest.raises(SwarmError, match="of another model"):
        Swarm.load(file, wider, loss=optax.squared_error)
    with pytest.raises(SwarmError, match=r"expected shape .*12.* got .*8"):
        Swarm.load(file, lambda rngs: Widened(rngs), loss=optax.squared_error)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(SwarmError, match="not a saved swarm, or damaged"):
        Swarm.load(file, Network, loss=optax.squared_error)
    with pytest.raises(FileNotFoundError):
        Swarm.load(tmp_path / "none", Network, loss=optax.squared_error)


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
    with pytest.raises(WriteError, match="cannot be written"):
        untrained.save(tmp_path / "file" / "a.swarm")
