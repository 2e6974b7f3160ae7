"""The result of a fit."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int32

from forecaster.swarm.arrays.members import append_members, take_members
from forecaster.swarm.checkpoints.history import append_losses, widened_losses
from forecaster.swarm.task import AnyArray, Params
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
