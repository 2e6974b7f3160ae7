"""Swarms as populations: create, copy and average members with their training state."""

import operator
from collections.abc import Sequence

import jax
import numpy as np

from forecaster.swarm.arrays.members import mean_members
from forecaster.swarm.checks import SwarmError, check_ids, checked_names, row_of
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import ArrayLike, Tree
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.loop import Losses


def selected_rows(
    members: Sequence[str], names: Sequence[str], ids: Sequence[str] | None
) -> tuple[list[int], tuple[str, ...]]:
    """Return the positions of the named members, and their new names.

    ``ids``: the new names; None keeps the old ones. Raises SwarmError for a single string, unknown
    names, a name given twice without ``ids``, and ``ids`` of another length or not unique.
    """
    names, rows = checked_names(names, "select"), {name: row for row, name in enumerate(members)}
    if not names:
        raise SwarmError("no members would be left; expected at least one")
    if ids is None:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SwarmError(
                f"select: {twice!r} comes more than once, and members' names must be unique. Name "
                "the copies: select(names, ids=[...])"
            )
        ids = names
    ids = checked_names(ids, "ids")
    if len(ids) != len(names):
        raise SwarmError(f"ids: expected {len(names)}, one for each name; got {len(ids)}")
    check_ids(ids)
    return [rows[name] if name in rows else row_of(members, name) for name in names], ids


def copy_members(
    result: FitResult, rows: Sequence[int], ids: Sequence[str], seed: int
) -> FitResult:
    """Return the members at ``rows``, named ``ids``; rows may repeat.

    A copy has its row's weights, optimiser state and history. A member that keeps its name keeps
    its random key; under a new name the key is derived from the seed and that name, so that copies
    draw different numbers.
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
    """Return one member whose weights are the weighted mean of all members'.

    - ``untrained``: the member that gets the mean weights; its name and key stay
    - ``weights``: each member's weight in the mean, (member,); equal by default
    - ``opt_state``: average the optimisers' states too, and continue from the largest epoch

    Raises SwarmError unless there is a weight for each member.
    """
    members = len(result.ids)
    share = np.ones(members) if weights is None else np.asarray(weights, float)
    if share.shape != (members,) or not np.isfinite(share).all() or share.sum() <= 0:
        raise SwarmError(f"weights: expected {members} numbers with a sum above 0; got {weights}")

    def mean(tree: Tree) -> Tree:
        return jax.tree.map(operator.itemgetter(None), mean_members(tree, share))

    averaged = untrained.with_params(mean(result.params))
    if not opt_state:
        return averaged
    epoch = result.epochs.max(keepdims=True)
    none = np.full((1, int(epoch[0])), np.nan, np.float32)
    state = averaged.state._replace(
        opt_state=mean(result.state.opt_state), epoch=epoch, best_epoch=epoch
    )
    return FitResult(averaged.ids, state, Losses(none, none), 0.0)
