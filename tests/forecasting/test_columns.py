"""The names of forecast columns, parsed and built."""

import numpy as np

from forecaster.forecasting import (
    columns_of_quantiles,
    levels_of,
    models_of,
    quantile_columns,
    quantiles_of,
)

FRAME = [
    "unique_id", "ds", "cutoff", "y", "LSTM", "LSTM-lo-80", "LSTM-hi-80", "LSTM-lo-97.5",
    "LSTM-hi-97.5", "Naive", "my-lo-model", "my-lo-model-lo-50", "my-lo-model-hi-50", "horizon",
]  # fmt: skip


def test_a_frame_says_its_models_levels_and_quantiles():
    assert models_of(FRAME) == ["LSTM", "Naive", "my-lo-model"]
    assert levels_of(FRAME, "LSTM") == ["80", "97.5"] and levels_of(FRAME, "Naive") == []
    assert list(quantile_columns(FRAME, "LSTM").items()) == [
        (0.0125, "LSTM-lo-97.5"), (0.1, "LSTM-lo-80"), (0.5, "LSTM"), (0.9, "LSTM-hi-80"),
        (0.9875, "LSTM-hi-97.5"),
    ]  # fmt: skip
    assert quantile_columns(FRAME, "Naive") == {}


def test_quantiles_become_columns_and_come_back():
    levels = [80, 95]
    np.testing.assert_array_equal(quantiles_of(levels), [0.025, 0.1, 0.5, 0.9, 0.975])
    values = np.arange(10.0).reshape(2, 5)
    columns = columns_of_quantiles("M", values, levels)
    assert list(columns) == ["M", "M-lo-95", "M-hi-95", "M-lo-80", "M-hi-80"]
    for position, (quantile, column) in enumerate(quantile_columns(columns, "M").items()):
        assert quantile == quantiles_of(levels)[position]
        np.testing.assert_array_equal(columns[column], values[:, position])
