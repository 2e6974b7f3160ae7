"""The examples of the swarm's README run as written and come to what they promise."""

import re
from pathlib import Path

import numpy as np
import pytest

import forecaster.swarm

README = Path(forecaster.swarm.__file__).with_name("README.md")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def ten_networks(found):
    first, last = found["swarm"].losses.train[:, 0], found["swarm"].losses.train[:, -1]
    assert first.shape == (10,) and (last < 0.5 * first).all()


def regressors(found):
    trained = found["regressors"]
    assert len(trained) == 20 and (trained.epochs < 200).any()
    mine = trained.select(["series 3"]).predict(found["x"][3][None, :2])[0]
    np.testing.assert_allclose(found["one"](found["x"][3][:2]), mine, rtol=1e-5)
    np.testing.assert_array_equal(
        found["again"].predict(found["inputs"]), trained.predict(found["inputs"])
    )
    assert found["few"].ids == ("series 3", "series 5", "a new one")


def bags(found):
    assert found["logits"].shape == (50, 200, 5)
    assert found["together"] > found["alone"]


def hyperparameters(found):
    assert found["tuned"].choice.shape == (6,)
    assert len(set(found["tuned"].summary()["hidden"])) == 2


def own_loss(found):
    params = found["clients"].params["inner"]
    assert (params[0] == params[1]).all()  # merged in the last step
    assert found["losses"].shape == (8,)


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
    found = {}
    exec(compile(BLOCKS[number], f"README example {number + 1}", "exec"), found)
    CHECKS[number](found)
    assert capsys.readouterr().out
