"""What the shards of a fit have come to, together: on the host, and on the disk."""

from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from forecaster.swarm import checkpoint as _checkpoint
from forecaster.swarm.data import Held, Rows
from forecaster.swarm.history import History, put_together
from forecaster.swarm.members import fill_members, take_members
from forecaster.swarm.shards import Shard, ShardResult, Work
from forecaster.swarm.states import blank_state, member_state
from forecaster.swarm.training import Losses, State, Status


class Gathered:
    """Members that have ended, and those to come, which have the state of their origin or none.

    ``ended`` is (member,): which have ended; ``failed``: the reasons of those that no worker could
    train, by name; ``computed``: which code computed.
    """

    def __init__(self, work: Work, failed: Mapping[str, str]):
        self._work = work
        self.failed = {name: why for name, why in failed.items() if name in set(work.ids)}
        self.ended = np.isin(work.ids, list(self.failed)) if failed else self._nobody()
        self._state: State | None = None
        none = np.full((len(work.ids), 0), np.nan, np.float32)
        metrics = dict.fromkeys(work.task.metrics, none)
        self._first = work.losses or Losses(none, none, metrics)
        self._parts: list[tuple[Rows, Losses]] = []
        # (member,); the validation loss, NaN before there is any.
        self.latest = np.full(len(work.ids), np.nan)
        self.computed: dict[str, str] = {}

    def _nobody(self) -> np.ndarray:
        return np.zeros(len(self._work.ids), bool)

    @property
    def left(self) -> Rows:
        """Positions of the members that are still to train."""
        return np.flatnonzero(~self.ended)

    @property
    def state(self) -> State:
        """Of all members; numpy arrays that can be written to."""
        if self._state is None:
            work, origin = self._work, self._work.origin
            if isinstance(origin, State):
                self._state = jax.tree.map(np.array, origin)
            else:
                held = Held(work.data, len(work.ids))
                member = member_state(work.task, held, origin, work.hyperparams, work.limits)
                self._state = blank_state(member, held.members)
            assert self._state is not None
        return self._state

    @property
    def losses(self) -> Losses:
        """Of all members, each (member, epoch)."""
        return put_together(self._first, self._parts) if self._parts else self._first

    def restore(self, path: Path, digest: str) -> None:
        """Take over the members that had ended before an interruption."""
        metrics = sorted({*self._work.task.metrics, *self._first.metrics})
        saved, self.computed = _checkpoint.read(path, digest, self.state, metrics=metrics)
        ended = np.asarray(saved.state.status) != Status.TRAINING
        rows = np.flatnonzero(saved.started & ended & ~self.ended)
        self._take(rows, *take_members((saved.state, saved.losses), rows))

    def _take(self, rows: Rows, state: State, losses: Losses) -> None:
        if len(rows) == len(self.ended):
            self._state, self._first, self._parts = state, losses, []
        elif len(rows):
            fill_members(self.state, rows, state)
            # Copies: an executor's arrays may lie in memory that it shares, states and all.
            self._parts.append((rows, jax.tree.map(np.array, losses)))
        self.latest[rows] = History.of(losses, np.asarray(state.epoch)).latest
        self.ended[rows] = True

    def add(self, shard: Shard, trained: ShardResult) -> None:
        """Take over a shard that has ended."""
        _checkpoint.check_arithmetic("shards before", self.computed, trained.arithmetic)
        self.computed = trained.arithmetic
        self._take(shard.rows, trained.state, trained.losses)

    def fail(self, shard: Shard, reason: str) -> None:
        """Set aside the members of a shard that no worker could train."""
        status, loss = (np.array(leaf) for leaf in (self.state.status, self.state.best_loss))
        status[shard.rows], loss[shard.rows] = Status.FAILED, np.inf
        self._state = self.state._replace(status=status, best_loss=loss)
        self.failed |= {self._work.ids[row]: reason for row in shard.rows.tolist()}
        self.ended[shard.rows] = True

    @property
    def epoch(self) -> np.ndarray:
        """How many epochs each member has trained, (member,)."""
        return np.asarray(self.state.epoch)
