"""Swarms as populations: members copied and averaged, with all that training left of them."""

from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from forecaster.swarm.arrays.members import mean_members
from forecaster.swarm.checks import SwarmError, check_ids, listed, row_of, shares
from forecaster.swarm.devices.lanes import map_members
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import ArrayLike, Tree
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.training import Losses, State


def untrained_members(
    init: Callable[..., State],
    ids: Sequence[str],
    seed: int,
    hyperparams: Mapping[str, np.ndarray],
    lanes: int | None,
) -> FitResult:
    """Members that have seen no data.

    - ``init``: one member's first state, from its raw key and hyperparameters
    - ``ids``, ``seed``: decide the keys
    - ``hyperparams``: arrays (member,)
    - ``lanes``: see :func:`forecaster.swarm.fit`
    """
    keys, members = member_keys(seed, ids), len(ids)
    state = map_members(init, keys, hyperparams, members=members, lanes=lanes, once=True)
    none = np.zeros((members, 0), np.float32)
    return FitResult(tuple(ids), state, Losses(none, none), 0.0)


def selected_rows(
    members: Sequence[str], names: Sequence[str], ids: Sequence[str] | None
) -> tuple[list[int], tuple[str, ...]]:
    """The positions of these names among the members, and what they are called from now on.

    Raises SwarmError for a single string, when there is no member of a name, when one comes twice
    without ``ids``, and when these are not as many or not all different.
    """
    names, rows = listed(names, "select"), {name: row for row, name in enumerate(members)}
    if not names:
        raise SwarmError("no members would be left; expected at least one")
    if ids is None:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SwarmError(
                f"select: {twice!r} comes more than once, and members' names must be unique. Give "
                "the copies names of their own: select(names, ids=[...])"
            )
        ids = names
    ids = listed(ids, "ids")
    if len(ids) != len(names):
        raise SwarmError(f"ids: expected {len(names)}, one for each name; got {len(ids)}")
    check_ids(ids)
    return [rows[name] if name in rows else row_of(members, name) for name in names], ids


def names_without(members: Sequence[str], names: Sequence[str]) -> list[str]:
    """The members but for these. Raises SwarmError where there is none of a name."""
    dropped = {row_of(members, name) for name in listed(names, "drop")}
    return [name for row, name in enumerate(members) if row not in dropped]


def copy_members(
    result: FitResult, rows: Sequence[int], ids: Sequence[str], seed: int
) -> FitResult:
    """The members in these rows under these names, a row as often as one likes.

    Weights, the optimiser's state and the history are those of the row. The random key stays where
    the name does; otherwise it is that of the seed and the new name, so that copies draw other
    numbers.
    """
    copied = result.select(rows, ids)
    renamed = np.array([result.ids[row] for row in rows]) != np.array(ids)
    key = np.where(renamed[:, None], member_keys(seed, ids), np.asarray(copied.state.key))
    return FitResult(copied.ids, copied.state._replace(key=key), copied.losses, copied.seconds)


def mean_member(
    result: FitResult,
    untrained: FitResult,
    weights: ArrayLike | None,
    *,
    opt_state: bool,
) -> FitResult:
    """One member whose weights are the weighted mean of all members'.

    - ``untrained``: the member that becomes the mean; its name and key stay
    - ``weights``: how much each member counts, (member,); by default all alike
    - ``opt_state``: whether the optimisers' states are averaged too, and epochs counted on from
      those of the member with the most

    Raises SwarmError unless there is a weight for each member.
    """
    share = shares(weights, len(result.ids))

    def mean(tree: Tree) -> Tree:
        return jax.tree.map(_with_member_axis, mean_members(tree, share))

    averaged = untrained.with_params(mean(result.params))
    if not opt_state:
        return averaged
    epoch = result.epochs.max(keepdims=True)
    none = np.full((1, int(epoch[0])), np.nan, np.float32)
    state = averaged.state._replace(
        opt_state=mean(result.state.opt_state), epoch=epoch, best_epoch=epoch
    )
    return FitResult(averaged.ids, state, Losses(none, none), 0.0)


def _with_member_axis(leaf: np.ndarray) -> np.ndarray:
    return leaf[None]
