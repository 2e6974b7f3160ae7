"""The gallery: every script runs as written and learns."""

import io
import runpy
import sys
import warnings
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from matplotlib import pyplot

FOLDER = Path(__file__).parents[2] / "docs" / "gallery"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
CHEAP = {"pendulums", "population"}
MOST_BYTES = 60_000


def learned(names):
    """Check that the losses of all swarms in a script's namespace fell."""
    first, last = names["swarm"].losses.train[:, 0], names["swarm"].losses.train[:, -1]
    assert np.nanmean(last) < np.nanmean(first)


def pendulums(names):
    found, true = np.exp(names["swarm"].params["length"]), np.exp(names["truth"]["length"])
    assert np.median(abs(found / true - 1)) < 0.15
    learned(names)


def gaussian_processes(names):
    found, true = names["processes"].params["noise"], names["truth"]["noise"]
    assert np.corrcoef(found, true)[0, 1] > 0.6 and (names["variance"] > 0).all()


def cross_validation(names):
    assert names["error"].shape == (names["decays"], names["folds"])
    assert (names["seen"].mean(1)[:-1] < names["error"].mean(1)[:-1]).all()
    assert names["best"] in names["grid"]


def population(names):
    losses = np.array(names["losses"])
    assert losses[-1].min() < losses[0].min()
    assert np.ptp(np.log(names["rates"])) < np.ptp(np.log(names["history"][0]))


def federated(names):
    assert names["curves"][-1, :2].min() > 0.1
    merged = names["moments_too"]
    assert (merged.epochs == 2 * names["rounds"]).all()


def autoencoders(names):
    assert (names["told"] == names["y"][1200:]).mean() > 0.6


def transformers(names):
    assert names["error"].mean() < names["before"].mean()


def bandits(names):
    assert (names["swarm"].epochs == 2 * names["days"]).all()
    assert names["offered"].any(1).all() and not names["offered"].all(1).any()


def digits(names):
    assert names["right"].mean() > 0.5
    assert names["disagreement"][~names["right"]].mean() > names["disagreement"].mean()


def burgers(names):
    learned(names)


def cart_pole(names):
    assert np.shape(names["stood"]) == (names["updates"], names["agents"])
    assert np.isfinite(names["swarm"].losses.train[:, -1]).all()


def actor_critic(names):
    share, swarm = names["share"], names["swarm"]
    assert share[:, -5:].mean(1).max() > 0.3 > 0.2 > share[:, 0].mean()
    assert (swarm.epochs == names["updates"]).all()
    inputs = np.zeros((names["agents"], 1, 2 * names["PLACES"]), np.float32)
    assert swarm.predict(inputs).shape == (names["agents"], 1, 4)


def experts(names):
    assert names["share"].max(0).mean() > 0.6  # experts divide the work
    error = {name: np.median(abs(names[name] - names["truth"])) for name in ("mixed", "alone")}
    assert error["mixed"] < 2


CHECKS = {
    check.__name__: check
    for check in (
        pendulums, gaussian_processes, cross_validation, population, federated, autoencoders,
        transformers, bandits, digits, burgers, cart_pole, actor_critic, experts,
    )
}  # fmt: skip


def test_every_script_is_checked():
    assert set(NAMES) == CHECKS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in CHEAP else [pytest.mark.slow]) for n in NAMES]
)
def test_a_script_runs_and_learns(name, tmp_path, monkeypatch, capsys, request):
    if name == "digits":  # convolutions take minutes without XLA's optimisations
        request.getfixturevalue("as_for_users")
    if "sklearn" in (FOLDER / f"{name}.py").read_text():
        pytest.importorskip("sklearn")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--quick"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = runpy.run_path(str(FOLDER / f"{name}.py"))
    pyplot.close("all")
    CHECKS[name](names)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_code_and_figure(name):
    raw = (FOLDER / f"{name}.png").read_bytes()
    assert len(raw) < MOST_BYTES
    picture = matplotlib.image.imread(io.BytesIO(raw))
    assert min(picture.shape[:2]) > 250 and picture[..., :3].std() > 0.05
    page, index = (FOLDER / f"{name}.md").read_text(), (FOLDER / "index.md").read_text()
    assert f'--8<-- "docs/gallery/{name}.py"' in page and f"({name}.png)" in page
    assert f"({name}.md)" in index and f"({name}.png)" in index
    site = (FOLDER.parents[1] / "zensical.toml").read_text()
    assert f'"gallery/{name}.md"' in site
