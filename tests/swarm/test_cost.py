"""The cost of training."""

import numpy as np
import optax
from flax import nnx

from forecaster.swarm import Shared, Swarm


def test_a_report_of_costs():
    x = np.random.default_rng(0).normal(size=(100, 64)).astype(np.float32)
    swarm = Swarm(lambda rngs: nnx.Linear(64, 32, rngs=rngs), [f"m{i}" for i in range(6)],
                  loss=optax.squared_error)  # fmt: skip
    cost = swarm.cost(Shared(x), Shared(x[:, :32]), batch_size=50)
    assert cost.members == 6 and cost.parameters == swarm.parameters == 64 * 32 + 32
    assert cost.steps_per_epoch == 2
    # One product forward and one for the weights' gradient; the update and the loss on top.
    assert 2 * 2 * 50 * 64 * 32 < cost.flops_per_step < 1.5 * 2 * 2 * 50 * 64 * 32
    assert cost.shared_bytes == x.nbytes + x[:, :32].nbytes + 4 * 100
    assert cost.state_bytes > 4 * 4 * cost.parameters  # weights, best ones, two moments
    assert cost.seconds_to_compile > 0
    rate = cost.flops_per_step * 2 / cost.seconds_per_member_epoch
    np.testing.assert_allclose(cost.flops_per_second, rate)
    assert cost.flops_per_second_per_lane * cost.lanes == cost.flops_per_second
    text = str(cost)
    for word in ("parameters", "flops per step", "seconds to compile", "per lane"):
        assert word in text
