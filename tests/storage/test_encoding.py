"""Arrays that are written in fewer bytes are read as they were, within what the type holds."""

import numpy as np
import pytest

from forecaster.storage.model import compression
from forecaster.storage.model.encoding import Encoding


@pytest.mark.parametrize(
    "encoding", [*compression.METHODS.values(), Encoding("float16", 0.3, "float16")]
)
def test_what_is_written_is_read(encoding):
    random = np.random.default_rng(0)
    arrays = {
        "params/a/kernel": random.normal(size=(3, 5, 7)).astype(np.float32),
        "params/a/bias": random.normal(size=(3, 7)).astype(np.float32),
        "scores": random.normal(size=(3, 20, 2)).astype(np.float32),
    }
    arrays["params/a/kernel"][1, :, 2] = 0.0  # a column without any weight
    read = encoding.read(encoding.write(arrays))
    assert read.keys() == arrays.keys()
    np.testing.assert_array_equal(read["params/a/bias"], arrays["params/a/bias"])
    kernel, again = arrays["params/a/kernel"], read["params/a/kernel"]
    kept = again != 0
    most = {"float32": 0.0, "float16": 1e-3, "int8": 1 / 127}[encoding.weights]
    largest = np.abs(kernel).max(axis=1, keepdims=True)
    assert (
        np.abs(again - kernel)[kept] <= most * np.broadcast_to(largest, kernel.shape)[kept]
    ).all()
    for one, other in zip(kernel, again, strict=True):
        lost = np.abs(one[other == 0])
        assert (other == 0).sum() >= int(encoding.pruned * one.size)
        if encoding.weights == "float32" and encoding.pruned:
            assert lost.max() <= np.abs(one[other != 0]).min()
    np.testing.assert_allclose(read["scores"], arrays["scores"], rtol=1e-3, atol=1e-3)
