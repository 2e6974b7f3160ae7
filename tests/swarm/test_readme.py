"""The examples of the README and of the guide run as written, with the promised results."""

from pathlib import Path

import numpy as np
import pytest

import forecaster.swarm
from tests.conftest import blocks

README = Path(forecaster.swarm.__file__).with_name("README.md")
GUIDE = Path(__file__).parents[2] / "docs" / "engine.md"
BLOCKS = [*blocks(README, "python"), *blocks(GUIDE, "python")]


def ten_networks(names):
    first, last = names["swarm"].losses.train[:, 0], names["swarm"].losses.train[:, -1]
    assert first.shape == (10,) and (last < 0.5 * first).all()


def regressors(names):
    trained = names["regressors"]
    assert len(trained) == 20 and (trained.epochs < 200).any()
    predictions = trained.select(["series 3"]).predict(names["x"][3][None, :2])[0]
    np.testing.assert_allclose(names["one"](names["x"][3][:2]), predictions, rtol=1e-5)
    np.testing.assert_array_equal(
        names["again"].predict(names["inputs"]), trained.predict(names["inputs"])
    )
    assert names["few"].ids == ("series 3", "series 5", "a new one")


def bags(names):
    assert names["logits"].shape == (50, 200, 5)
    assert names["together"] > names["alone"]


def hyperparameters(names):
    assert names["tuned"].choice.shape == (6,)
    assert len(set(names["tuned"].summary()["hidden"])) == 2


def own_loss(names):
    params = names["clients"].params["inner"]
    assert (params[0] == params[1]).all()  # merged in the last step
    assert names["losses"].shape == (8,)


def state(names):
    classifiers = names["classifiers"]
    assert (classifiers.summary()["accuracy"] > 0.85).all()
    assert (names["drawn"].std(0) > 0).any()


def one_network(names):
    assert names["network"].losses.train[-1] < 0.1 * names["network"].losses.train[0]


def schedules(names):
    np.testing.assert_allclose(names["lines"].params["slope"], 2, atol=0.05)


def penalties(names):
    free, bound, tight = np.linalg.norm(names["ridges"].params["slope"], axis=1)
    np.testing.assert_allclose(free, np.sqrt(5), rtol=0.01)
    assert tight < 0.7 * free < bound < 0.98 * free


def pure(names):
    assert (names["trained"].epochs == 200).all() and names["trained"].losses.train.shape[1] == 200
    assert (np.asarray(names["losses"])[-1] < 0.01 * np.asarray(names["losses"])[0]).all()


CHECKS = [ten_networks, regressors, bags, hyperparameters, own_loss]
CHECKS += [state, one_network, schedules, penalties, pure]


SLOW = {hyperparameters}


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, id=check.__name__, marks=[pytest.mark.slow] if check in SLOW else [])
        for n, check in enumerate(CHECKS)
    ],
)
def test_an_example_runs(number, tmp_path, monkeypatch, capsys):
    assert len(BLOCKS) == len(CHECKS)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(BLOCKS[number], f"README example {number + 1}", "exec"), names)
    CHECKS[number](names)
    assert capsys.readouterr().out
