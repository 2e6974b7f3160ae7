"""A series' network is the same bits whoever is trained beside it, and however often it stops."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import forecaster as fc
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
