"""The examples of the swarm's README run as written and come to what they promise."""

import re
from pathlib import Path

import numpy as np
import pytest

import forecaster.swarm

README = Path(forecaster.swarm.__file__).with_name("README.md")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


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


CHECKS = [ten_networks, regressors, bags, hyperparameters, own_loss]


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
