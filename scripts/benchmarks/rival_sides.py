"""Define the methods of ``rivals.py``: each returns a function that runs a task."""

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from rival_networks import flax_module, plain, torch_module
from rival_work import Work


def per_member(work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Return a task's data with a leading member axis."""
    x, y = work.data()
    return tuple(np.broadcast_to(each, (work.members, *each.shape)) for each in (x, y))


def by_ours(work: Work) -> Callable[[], Any]:
    import optax

    from forecaster.swarm import Shared, Swarm

    x, y = work.data()
    loss = optax.softmax_cross_entropy if work.classes else optax.squared_error
    made = Swarm(
        flax_module(work), work.members, loss=loss, optimizer=optax.adam,
        hyperparams={"learning_rate": 1e-3},
    )  # fmt: skip
    many, targets = per_member(work)

    def fit() -> float:
        fitted = made.fit(Shared(x), Shared(y), epochs=work.steps, batch_size=None)
        return float(fitted.losses.train[:, -1].mean())

    def predict() -> float:
        out, call = None, made.bind() if work.kind == "bound" else made.predict
        for _ in range(work.steps):
            out = call(many)
        return float(np.asarray(out).mean())

    def step() -> float:
        swarm, losses = made, None
        for _ in range(work.steps):
            swarm, losses = swarm.step(many, targets)
        return float(np.asarray(losses).mean())

    return {"fit": fit, "predict": predict, "bound": predict, "step": step}[work.kind]


def by_vmap(work: Work, *, fetched: bool = False) -> Callable[[], Any]:
    """Train by one vmap and one scan over the steps, in one program.

    ``fetched``: the result of each single call is copied to the host before the next call, as
    ``predict`` and ``step`` of this program do
    """
    import jax
    import jax.numpy as jnp

    x, y = map(jnp.asarray, work.data())
    network = plain(work)

    def train(key):
        params = network.init(key)
        carry = params, network.begin(params)
        return jax.lax.scan(lambda c, _: network.step(c, x, y), carry, length=work.steps)

    keys = jax.random.split(jax.random.key(0), work.members)
    if work.kind == "fit":
        program = jax.jit(jax.vmap(train))
        return lambda: float(np.asarray(program(keys)[1])[:, -1].mean())
    params = jax.jit(jax.vmap(network.init))(keys)
    state = jax.jit(jax.vmap(network.begin))(params)
    one, use = jax.jit(jax.vmap(network.step)), jax.jit(jax.vmap(network.apply))
    many, targets = per_member(work)
    read = np.asarray if fetched else lambda array: array

    def predict() -> float:
        out = None
        for _ in range(work.steps):
            out = read(use(params, many))
        return float(np.asarray(out).mean())

    def steps() -> float:
        carry, losses = (params, state), None
        for _ in range(work.steps):
            carry, losses = one(carry, many, targets)
            losses = read(losses)
        return float(np.asarray(losses).mean())

    return predict if work.kind in ("predict", "bound") else steps


def by_turbanet(work: Work) -> Callable[[], Any]:
    import optax
    import turbanet  # pyright: ignore[reportMissingImports]
    from flax import linen

    x, _ = work.data()

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            for outputs in work.sizes[1:-1]:
                x = linen.relu(linen.Dense(outputs)(x))
            return linen.Dense(work.sizes[-1])(x)

    made = turbanet.TurbaTrainState.swarm(Network(), optax.adam(1e-3), work.members, x[:1])
    many, targets = per_member(work)

    def train() -> float:
        swarm, losses = made, None
        for _ in range(work.steps):
            swarm, losses, _ = swarm.train(many, targets, turbanet.mse)
        return float(np.asarray(losses).mean())

    def predict() -> float:
        out = None
        for _ in range(work.steps):
            out = made.predict(many)
        return float(np.asarray(out).mean())

    return predict if work.kind in ("predict", "bound") else train


def by_torch(work: Work) -> Callable[[], Any]:
    """Train an ensemble as in PyTorch's tutorial: functional_call under vmap, one Adam.

    This vmap does not support recurrent networks, which are trained one after another.
    """
    import torch

    x, y = map(torch.tensor, work.data())
    x = x.movedim(-1, 1) if work.network == "cnn" else x
    build, recurrent = torch_module(work), work.network in ("lstm", "gru")
    networks = [build() for _ in range(work.members)]
    torch.set_num_threads(
        1 if recurrent else len(os.sched_getaffinity(0))
    )  # more threads slow down small cells
    if recurrent:
        return lambda: float(np.mean([_trained(work, network, x, y) for network in networks]))
    base = build().to("meta")
    start, _ = torch.func.stack_module_state(networks)

    def outputs(params, x):
        return torch.func.functional_call(base, params, (x,))

    def train() -> float:
        params = {name: value.detach().clone().requires_grad_() for name, value in start.items()}
        adam = torch.optim.Adam(params.values(), lr=1e-3, fused=True)
        losses = torch.zeros(())
        for _ in range(work.steps):
            adam.zero_grad()
            losses = _torch_loss(work, torch.vmap(outputs, in_dims=(0, None))(params, x), y)
            losses.sum().backward()
            adam.step()
        return float(losses.detach().mean())

    def predict() -> float:
        with torch.no_grad():
            out = torch.zeros(())
            for _ in range(work.steps):
                out = torch.vmap(outputs, in_dims=(0, None))(start, x)
        return float(out.mean())

    return predict if work.kind in ("predict", "bound") else train


def _torch_loss(work: Work, predicted: Any, y: Any) -> Any:
    """Return each member's loss, from predictions (member, example, output)."""
    if work.classes:
        return -(predicted.log_softmax(-1) * y).sum(-1).mean(1)
    return ((predicted - y) ** 2).mean((1, 2))


def _trained(work: Work, network: Any, x: Any, y: Any) -> float:
    """Train one network further; return its last loss."""
    import torch

    adam = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    loss = torch.zeros(())
    for _ in range(work.steps):
        adam.zero_grad()
        loss = ((network(x) - y) ** 2).mean()
        loss.backward()
        adam.step()
    return float(loss.detach())


def by_sklearn(work: Work) -> Callable[[], Any]:
    """Train scikit-learn's networks in its bagging, on all cores; no early stop, no bootstrap."""
    import warnings

    from sklearn.ensemble import BaggingClassifier, BaggingRegressor
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    x, y = work.data()
    bagging, perceptron = BaggingRegressor, MLPRegressor
    if work.classes:
        bagging, perceptron = BaggingClassifier, MLPClassifier
    network = perceptron(
        hidden_layer_sizes=work.sizes[1:-1], alpha=0.0, batch_size=work.examples, shuffle=False,
        max_iter=work.steps, tol=0.0, n_iter_no_change=work.steps + 1,
    )  # fmt: skip
    ensemble = bagging(network, work.members, bootstrap=False, n_jobs=-1)
    target = y.argmax(1) if work.classes else y[:, 0] if y.shape[1] == 1 else y

    def fit() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = ensemble.fit(x, target)
        return float(np.mean([member.loss_ for member in fitted.estimators_]))

    return fit


MAKERS = {"ours": by_ours, "vmap": by_vmap, "turbanet": by_turbanet, "torch": by_torch,
          "sklearn": by_sklearn, "fetched": functools.partial(by_vmap, fetched=True)}  # fmt: skip


def takes_part(side: str, work: Work) -> bool:
    """Return whether a method supports such a network and such a call."""
    if side == "sklearn":
        # Longer tasks would take minutes.
        short = work.members <= 256 and work.members * work.steps < 50_000
        return work.network == "mlp" and work.kind == "fit" and short
    if side == "fetched":
        return work.kind in ("predict", "step")
    return side != "turbanet" or (work.network == "mlp" and not work.classes)
