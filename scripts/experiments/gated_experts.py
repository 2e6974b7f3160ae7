"""Train specialised sub-models with a learned gate, on the public API of the swarm.

    python scripts/experiments/gated_experts.py [--quick]

The function to learn behaves differently in four regions. Four small networks specialise, each on
the examples that it explained best in the previous round (a hard form of Jacobs et al. 1991). A
gate then learns from the inputs which expert to ask. For comparison: one network with as many
weights as the experts and the gate together, and the mean of four networks that saw all examples.
"""

import harness
import numpy as np
import optax
import pandas as pd
from flax import nnx

from forecaster.swarm import Shared, Swarm


def regression(hidden: int, outputs: int = 1):
    def build(rngs):
        return nnx.Sequential(
            nnx.Linear(2, hidden, rngs=rngs), nnx.tanh, nnx.Linear(hidden, outputs, rngs=rngs)
        )

    return build


def examples(count: int, random) -> tuple[np.ndarray, np.ndarray]:
    """Draw inputs (example, 2) and targets (example, 1), by a different rule in each quadrant."""
    x = random.uniform(-1, 1, (count, 2)).astype(np.float32)
    a, b = x.T
    rules = [np.sin(6 * a), a - b, -np.cos(5 * b), 2 * a * b]
    y = np.choose((a > 0) + 2 * (b > 0), rules) + random.normal(0, 0.05, count)
    return x, y[:, None].astype(np.float32)


def main() -> None:
    options = harness.parser(__doc__, experts=4, rounds=12, epochs=40).parse_args()
    if options.quick:
        options.rounds, options.epochs = 2, 2
    random = np.random.default_rng(options.seed)
    (x, y), (test_x, test_y) = examples(2000, random), examples(2000, random)
    names = [f"expert {i}" for i in range(options.experts)]
    common = {
        "loss": optax.squared_error, "optimizer": optax.adam,
        "hyperparams": {"learning_rate": 0.01}, "seed": options.seed,
    }  # fmt: skip
    experts = Swarm(regression(16), names, **common)
    share = random.dirichlet(np.ones(options.experts), len(x)).T.astype(np.float32)
    everyone = (len(names), *x.shape), (len(names), *y.shape)
    inputs, targets = np.broadcast_to(x, everyone[0]), np.broadcast_to(y, everyone[1])
    for _ in range(options.rounds):  # the expert that explains an example best is trained on it
        experts = experts.fit(
            inputs, targets, sample_weight=share, epochs=options.epochs, batch_size=64
        )
        error = ((np.asarray(experts.predict(Shared(x))) - y) ** 2)[..., 0]
        share = (error == error.min(0)).astype(np.float32)
    gate = Swarm(
        regression(32, options.experts), ["gate"], optimizer=optax.adam, seed=options.seed,
        loss=optax.softmax_cross_entropy_with_integer_labels, hyperparams={"learning_rate": 0.01},
    ).fit(Shared(x), Shared(share.argmax(0)), epochs=3 * options.epochs, batch_size=64)  # fmt: skip

    epochs = options.rounds * options.epochs
    mean = Swarm(regression(16), names, **common)
    mean = mean.fit(Shared(x), Shared(y), epochs=epochs, batch_size=64)
    weights = options.experts * (4 * 16 + 1) + 3 * 32 + 33 * options.experts
    hidden = (weights - 1) // 4  # two inputs, a bias and an output for each hidden unit
    single = Swarm(regression(hidden), ["single"], **common)
    single = single.fit(Shared(x), Shared(y), epochs=epochs, batch_size=64)

    said = np.asarray(experts.predict(Shared(test_x)))[..., 0]  # (expert, example)
    chosen = np.asarray(gate.predict(Shared(test_x)))[0].argmax(-1)
    truth = test_y[:, 0]
    forecasts = {
        "experts with a gate": said[chosen, np.arange(len(truth))],
        "best expert for each, if one knew": said[
            ((said - truth) ** 2).argmin(0), np.arange(len(truth))
        ],
        "mean of four that saw everything": np.asarray(mean.predict(Shared(test_x))).mean(0)[:, 0],
        "one network of that size": np.asarray(single.predict(Shared(test_x)))[0, :, 0],
    }
    rows = [(name, float(np.sqrt(((f - truth) ** 2).mean()))) for name, f in forecasts.items()]
    table = pd.DataFrame(rows, columns=["model", "rmse"])
    print(table.round(4).to_string(index=False))
    harness.write(options, table)
    drawn, (place,) = harness.axes()
    for number, colour in zip(range(options.experts), harness.COLOURS * 9, strict=False):
        place.scatter(*test_x[chosen == number].T, s=3, color=colour, label=names[number])
    place.set(title="whom the gate asks", xlabel="first input", ylabel="second input")
    place.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
