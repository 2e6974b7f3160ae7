"""The result of a fit: members with their training state, which can be copied and averaged."""

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float, Int32

from forecaster.swarm.arrays import append_members, mean_members, take_members
from forecaster.swarm.checkpoints import append_losses, widened_losses
from forecaster.swarm.checks import SwarmError, check_ids, checked_names, row_of
from forecaster.swarm.task import AnyArray, ArrayLike, Params, Tree
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.loop import Losses, State, Status

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class FitResult:
    """The result of a fit, a row per member in the order of ``ids``; all arrays are numpy."""

    ids: tuple[str, ...]
    state: State  # everything needed to continue the training; leaves (member, ...)
    losses: Losses  # each (member, epoch), NaN after a member stopped
    seconds: float
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The members that no worker of an executor could train, with the reasons."""
    computed: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The code that computed the result, see :func:`arithmetic`; empty where it is not known."""

    @property
    def params(self) -> Params:
        """The best weights; leaves (member, ...)."""
        return self.state.best_params

    @property
    def status(self) -> Int32[np.ndarray, " member"]:
        """The :class:`Status` of each member."""
        return np.asarray(self.state.status)

    @property
    def epochs(self) -> Int32[np.ndarray, " member"]:
        """Epochs trained; of a diverged member, the epoch in which it diverged."""
        return np.asarray(self.state.epoch)

    @property
    def best_epoch(self) -> Int32[np.ndarray, " member"]:
        """The epoch of the best weights; 0 for the initial ones."""
        return np.asarray(self.state.best_epoch)

    @property
    def best_loss(self) -> Float[np.ndarray, " member"]:
        """The validation loss of the best weights, or the metric that chose them."""
        return np.asarray(self.state.best_loss)

    @property
    def diverged(self) -> dict[str, int]:
        """The members whose loss or weights became infinite or NaN, and the epoch of it."""
        rows = np.flatnonzero(self.status == Status.DIVERGED)
        return {self.ids[row]: int(self.epochs[row]) for row in rows}

    def summary(self) -> "pd.DataFrame":
        """Return a row per member: status, epochs, best epoch, its loss and metrics."""
        import pandas as pd

        columns = {
            "status": [Status(status).name.lower() for status in self.status],
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "best_loss": self.best_loss,
        }
        columns |= {name: self._at_best(values) for name, values in self.losses.metrics.items()}
        return pd.DataFrame(columns, index=pd.Index(self.ids, name="id"))

    def _at_best(self, values: Float[AnyArray, "member epoch"]) -> Float[np.ndarray, " member"]:
        """Return each member's value in its best epoch; NaN for the initial weights."""
        out, rows = np.full(len(self.ids), np.nan, np.float32), np.flatnonzero(self.best_epoch)
        out[rows] = np.asarray(values)[rows, self.best_epoch[rows] - 1]
        return out

    def select(
        self, rows: Sequence[int] | np.ndarray, ids: Sequence[str] | None = None
    ) -> "FitResult":
        """Return some members, in this order; under other ids if given."""
        ids = [self.ids[row] for row in rows] if ids is None else ids
        state, losses = take_members((self.state, self.losses), rows)
        names = zip((self.ids[row] for row in rows), ids, strict=True) if self.failed else ()
        failed = {new: self.failed[old] for old, new in names if old in self.failed}
        return FitResult(tuple(ids), state, losses, self.seconds, failed)

    def append(self, other: "FitResult") -> "FitResult":
        """Return these members and those of another result, which must be of the same model."""
        return FitResult(
            self.ids + other.ids,
            append_members(self.state, other.state),
            append_losses(self.losses, other.losses),
            self.seconds,
            {**self.failed, **other.failed},
        )

    def after_step(self, state: State, loss: Float[np.ndarray, " member"]) -> "FitResult":
        """Return the members after a step that counts as an epoch, with its training loss."""
        after, rows = self.with_state(state), np.flatnonzero(~np.isnan(loss))
        np.asarray(after.losses.train)[rows, after.epochs[rows] - 1] = loss[rows]
        return after

    def with_state(self, state: State) -> "FitResult":
        """Return the members with this state, (member, ...); losses of further epochs are NaN."""
        epochs = int(np.asarray(state.epoch).max())
        return dataclasses.replace(self, state=state, losses=widened_losses(self.losses, epochs))

    def with_params(self, params: Params) -> "FitResult":
        """Return the members with these weights, leaves (member, ...), and the rest unchanged."""
        return dataclasses.replace(
            self, state=self.state._replace(params=params, best_params=params)
        )


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
