"""A series' network is the same bits whoever is trained beside it, and however often it stops."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting.fitting.common import Sampling, learn_common
from forecaster.forecasting.fitting.fit import fit_part
from forecaster.swarm.native import kernel_status
from tests import company

ROOT = Path(__file__).parents[1]


def test_a_network_beside_others_is_the_one_it_is_alone():
    """In short, with the code that is in use; the slow test below has all kinds of company."""
    panel = company.load()
    hashes = {
        kind: company.forecast(fc.fit(panel.only(names), company.CONFIG, seed=1), panel)
        for kind, names in company.COMPANIES.items()
    }
    assert len(set(hashes.values())) == 1, hashes


@pytest.mark.slow
def test_a_single_series_has_the_bits_that_it_has_in_company():
    config = fc.Config(
        hidden=2, lookback=20, burn_in=5, horizon=2, validation=60, epochs=3, members=2
    )
    kinds = [("A", 300, "B"), ("B", 280, "W"), ("C", 320, "MS"), ("D", 300, "D"), ("F", 310, "B")]
    frames = [
        pd.DataFrame(
            {
                "unique_id": name,
                "ds": pd.date_range("1990", periods=rows, freq=frequency),
                "y": 100 + np.cumsum(np.random.default_rng(seed).standard_t(5, rows)),
            }
        )
        for seed, (name, rows, frequency) in enumerate(kinds, start=1)
    ]
    panel = fc.Panel.from_frame(pd.concat(frames))
    common = learn_common(panel, config, 0, Sampling.of(config, panel.ids, panel.ids, 320))
    together = fit_part(panel, config, 0, common).model
    for name in panel.ids:
        alone = fit_part(panel.only([name]), config, 0, common).model
        same = np.testing.assert_array_equal
        jax.tree.map(same, alone.params, together.only([name]).params)


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["plain", "tune"])
@pytest.mark.parametrize("kernel", ["off", "avx2"])
def test_a_network_does_not_depend_on_its_company(kernel, tune, tmp_path):
    if kernel != "off" and not kernel_status()[0]:
        pytest.skip(f"no compiled kernel: {kernel_status()[1]}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.company", tmp_path, tune],
        cwd=ROOT, capture_output=True, text=True,
        # Compiled as for users, who are promised the same bits; see `as_for_users`.
        env=os.environ | {"FORECASTER_KERNEL": kernel, "XLA_FLAGS": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = dict(line.split() for line in done.stdout.splitlines())
    assert said.pop("kernel") == kernel, done.stderr
    assert set(said) == {"alone", "together", "first", "resumed"}
    assert len(set(said.values())) == 1, said
