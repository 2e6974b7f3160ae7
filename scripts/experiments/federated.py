"""Average models over clients with different data (federated), on the swarm's public API.

    python scripts/experiments/federated.py [--quick]

Each client sees mostly digits of two classes. Clients train by themselves for a few epochs, the
weights are averaged, and all continue from the average (McMahan et al. 2017, arXiv 1602.05629).
The script compares the average, a client that never shares, and one model that sees all data and
so takes more steps in a round.
"""

import harness
import numpy as np
import optax
import pandas as pd
from bagged_digits import classifier, digits

from forecaster.swarm import Shared, Swarm


def split(y: np.ndarray, clients: int, random) -> list[np.ndarray]:
    """Return the rows of each client: four in five from two classes, the rest from any class."""
    rows = []
    for client in range(clients):
        local = np.flatnonzero(np.isin(y, [client % 10, (client + 1) % 10]))
        rows.append(np.concatenate([random.choice(local, 64), random.choice(len(y), 16)]))
    return rows


def main() -> None:
    parser = harness.parser(__doc__, clients=20, rounds=40, local_epochs=2)
    options = parser.parse_args()
    if options.quick:
        options.clients, options.rounds = 4, 2
    x, test_x, y, test_y = digits(options.seed)
    random = np.random.default_rng(options.seed)
    rows = split(y, options.clients, random)
    ids = [f"client {i}" for i in range(options.clients)]
    common = {
        "loss": optax.softmax_cross_entropy_with_integer_labels, "optimizer": optax.sgd,
        "hyperparams": {"learning_rate": 0.1}, "seed": options.seed,
    }  # fmt: skip
    inputs, labels = np.stack([x[r] for r in rows]), np.stack([y[r] for r in rows])
    clients = Swarm(classifier(64), ids, **common)
    clients = clients.with_params(clients.select(ids[:1]))  # all start with the same weights
    alone, central = clients, Swarm(classifier(64), ["central"], **common)
    everything = np.unique(np.concatenate(rows))

    def correct(swarm) -> np.ndarray:
        logits = np.asarray(swarm.predict(Shared(test_x)))
        return (logits.argmax(-1) == test_y).mean(1)

    rows_of_table = []
    for number in range(options.rounds):
        local = {"epochs": options.local_epochs, "batch_size": 16}
        clients = clients.fit(inputs, labels, **local)
        average = clients.merge()
        clients = clients.with_params(average)
        alone = alone.fit(inputs, labels, **local)
        central = central.fit(Shared(x[everything]), Shared(y[everything]), **local)
        rows_of_table.append(
            {
                "round": number + 1, "average of clients": correct(average)[0],
                "clients alone, median": np.median(correct(alone)),
                "all data in one place": correct(central)[0],
            }
        )  # fmt: skip
    table = pd.DataFrame(rows_of_table)
    print(table.iloc[[0, -1]].round(3).to_string(index=False))
    harness.write(options, table.assign(clients=options.clients))
    drawn, (place,) = harness.axes()
    table.plot(x="round", ax=place, color=harness.COLOURS)
    place.set(ylabel="digits told right", title=f"{options.clients} clients with two classes each")
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
