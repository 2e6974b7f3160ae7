"""The engine works without the rest of the package, so it could be published alone."""

import shutil
from pathlib import Path

import forecaster.swarm
from tests.swarm.processes import run_python

FOLDER = Path(forecaster.swarm.__file__).parent

WORK = """
import sys
sys.modules["forecaster"] = None  # an import of it fails
import numpy as np, optax
from flax import nnx
import manymodels
from manymodels import LSTM, Checkpoint, Shared, Swarm

class Network(nnx.Module):
    def __init__(self, rngs):
        self.cell = LSTM(1, 4, rngs=rngs)
        self.out = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.cell(x.swapaxes(0, 1), last_only=True))

x = np.random.default_rng(0).normal(size=(20, 5, 1)).astype(np.float32)
y = x.sum(1)
made = Swarm(Network, 2, loss=optax.squared_error, hyperparams={"learning_rate": 0.03})
fitted = made.fit(Shared(x), Shared(y), epochs=20, checkpoint=Checkpoint(manymodels_path("c")))
fitted.save(manymodels_path("s"))
loaded = Swarm.load(manymodels_path("s"), Network, loss=optax.squared_error)
assert (loaded.predict(Shared(x)) == fitted.predict(Shared(x))).all()
assert (fitted.evaluate(Shared(x), Shared(y)) < made.evaluate(Shared(x), Shared(y))).all()
for name in manymodels.__all__:
    assert getattr(manymodels, name) is not None
print(fitted)
"""


def test_it_works_under_another_name_without_the_package(tmp_path):
    copy = tmp_path / "manymodels"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in copy.rglob("*.py*"):
        file.write_text(file.read_text().replace("forecaster.swarm", "manymodels"))
    work = f"from pathlib import Path\nmanymodels_path = Path({str(tmp_path)!r}).joinpath\n{WORK}"
    assert "Swarm of 2 (2 finished)" in run_python(work, PYTHONPATH=str(tmp_path))
