"""The PyTorch baseline is the same training."""

import dataclasses

import numpy as np
import pytest

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.evaluation import BacktestOptions
from tests.messages import refuses

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="sequence"),
        pytest.param(
            {"training": "windowed", "layers": 2, "epochs": 2},
            id="windowed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_pytorch_comes_to_the_same_networks(panel, config, changes):
    from forecaster.evaluation.baselines.torch_lstm import fit_by_torch

    config = dataclasses.replace(config, **changes)
    some = panel.only(panel.ids[2:])
    by_jax, by_torch = fc.fit(some, config, seed=1), fit_by_torch(some, config, 1)
    assert not by_torch.skipped
    for name in ("status", "epochs", "best_epoch"):
        assert by_jax.report[name].equals(by_torch.report[name])
    np.testing.assert_allclose(
        by_jax.report["validation_loss"], by_torch.report["validation_loss"], rtol=1e-4
    )
    our_forecast, their_forecast = (
        fc.predict(model, some, [80]).set_index(["unique_id", "ds"]) for model in (by_jax, by_torch)
    )
    moved = (our_forecast["LSTM-hi-80"] / our_forecast["LSTM-lo-80"] - 1).to_numpy()
    for name in ("LSTM", "LSTM-lo-80", "LSTM-hi-80"):
        # Within a hundredth of the width of the band.
        assert (np.abs(our_forecast[name] / their_forecast[name] - 1) < 0.01 * moved).all()
    untrained = fc.fit(some, dataclasses.replace(config, learning_rate=1e-12), seed=1)
    assert not np.allclose(
        untrained.report["validation_loss"], by_jax.report["validation_loss"], 1e-3
    )


def test_what_pytorch_cannot_do_is_said(panel, config):
    from forecaster.evaluation.baselines.torch_lstm import fit_by_torch

    with refuses(UsageError):
        fit_by_torch(panel, dataclasses.replace(config, model="gru"))
    with refuses(UsageError):
        BacktestOptions(3, 1, ("torch",), refit=2).check(config)
