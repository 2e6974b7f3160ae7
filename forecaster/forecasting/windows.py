"""The steps of a history for training, validation and forecasts, and windows of steps.

Histories are aligned at their end (:class:`~forecaster.series.Histories`). Of ``steps`` in all, the
last are held back, a number that depends on the rows of the series:

    ... training targets ...  boundary | validation targets ... steps - 1

No training target lies after the boundary; the forecast made at the boundary is the first one that
is validated. Windows are not stored: the history is on the device once, and a window is an index
into it, whose steps are gathered inside the training step.

A :class:`TrainingMode` decides how windows are drawn, and which of their steps predict.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

AnyArray = TypeVar("AnyArray", Array, np.ndarray)  # for functions of arrays of JAX and of NumPy
Step: TypeAlias = int | Int[Array, "..."]


def padded_steps(rows: int) -> int:
    """Return the steps that histories are padded to, at most a sixteenth more than their rows.

    Programs are compiled for a number of steps. So those of today serve the longer histories of
    tomorrow, too, mostly.

    ``rows``: of the longest history
    """
    multiple = max(1, 2 ** (rows.bit_length() - 5))
    return -(-rows // multiple) * multiple


@dataclasses.dataclass(frozen=True)
class Split:
    """The sizes of windows and spans, the same for every member.

    - ``steps``: steps of all histories, see :func:`padded_steps`
    - ``lookback``: steps of a window
    - ``burn_in``: steps of a window that only warm up the state
    - ``horizon``: steps ahead that are forecast
    - ``validation``, ``shortest_validation``: the most and the fewest latest steps that a series
      holds back
    """

    steps: int
    lookback: int
    burn_in: int
    horizon: int
    validation: int
    shortest_validation: int

    @property
    def latest_boundary(self) -> int:
        """The last step that may be a target in training, for any member."""
        return self.steps - self.shortest_validation - 1

    @property
    def validation_origins(self) -> Int[np.ndarray, " origin"]:
        """The steps whose forecasts are validated, for members that hold back the most."""
        return np.arange(self.steps - self.validation - 1, self.steps - 1)

    def targets_within(
        self, origins: Int[AnyArray, "*origins"], earliest: Step, latest: Step
    ) -> Bool[AnyArray, "*origins horizon"]:
        """Return which targets count: up to ``latest``, of forecasts made since ``earliest``."""
        targets = origins[..., None] + 1 + np.arange(self.horizon)
        return (origins >= earliest)[..., None] & (targets <= latest)

    def starts(
        self, part: Float[Array, "*window"], first: Step, boundary: Step
    ) -> Int[Array, "*window"]:
        """Return the first steps of windows at a share ``part`` of a training span, in [0, 1)."""
        latest = boundary - self.lookback
        earliest = jnp.minimum(first, latest)
        return earliest + (part * (latest - earliest + 1)).astype(int)


class Windows(NamedTuple):
    """The windows of one batch of one member, or of all batches of an epoch.

    - ``starts``: the first step of each window, which may be in the padding before a history
    - ``used``: False for windows that fill up a batch and do not count
    """

    starts: Int[Array, "*batch window"]
    used: Bool[Array, "*batch window"]


@dataclasses.dataclass(frozen=True)
class Sequence:
    """The mode in which every step of a window after its burn-in predicts."""

    split: Split
    last_only: ClassVar[bool] = False

    def batches(
        self, key: Array, first: Step, boundary: Step, batch_size: int
    ) -> tuple[Windows, Bool[Array, " batch"]]:
        """Draw random windows, as many as it takes to cover the member's training span once.

        They do not depend on the length of other members' histories. Also return which batches
        have any. The span goes from ``first`` to the last target, ``boundary``.

        A batch is stratified: it has one start in each of ``batch_size`` equal parts of that span.
        """
        covered = (self.split.lookback - self.split.burn_in) * batch_size  # by a batch

        def covering(steps: Step) -> Step:
            return (2 * steps + covered) // (2 * covered)  # rounded

        steps = jnp.arange(max(1, covering(self.split.latest_boundary)))
        keys = jax.vmap(lambda step: jax.random.fold_in(key, step))(steps)
        part = jax.vmap(lambda k: jax.random.uniform(k, (batch_size,)))(keys)
        offset = (jnp.arange(batch_size) + part) / batch_size
        starts = self.split.starts(offset, first, boundary)
        active = steps < jnp.maximum(1, covering(boundary - first))
        return Windows(starts, jnp.ones(starts.shape, bool)), active

    def origins(self, starts: Int[AnyArray, "*windows"]) -> Int[AnyArray, "*windows predicting"]:
        """Return all steps of the windows after the burn-in."""
        return starts[..., None] + np.arange(self.split.burn_in, self.split.lookback)

    def validation_starts(self) -> Int[np.ndarray, " window"]:
        """Return windows whose predicting steps tile the validation origins, the latest first."""
        split = self.split
        stride = split.lookback - split.burn_in
        count = math.ceil(split.validation / stride)
        return split.steps - 1 - split.lookback - stride * np.arange(count)


@dataclasses.dataclass(frozen=True)
class Windowed:
    """The mode in which only the last step of a window predicts."""

    split: Split
    last_only: ClassVar[bool] = True

    def batches(
        self, key: Array, first: Step, boundary: Step, batch_size: int
    ) -> tuple[Windows, Bool[Array, " batch"]]:
        """Return all windows that end before the boundary, each once, in random order."""
        from forecaster.swarm import shuffled_batches

        lookback = self.split.lookback
        origins = jnp.arange(self.split.latest_boundary)
        whole = jnp.minimum(first + lookback - 1, boundary - 1)
        # Labels count from the end, so that a longer history of another member changes no draw.
        drawn, used, active = shuffled_batches(
            key,
            (origins >= whole) & (origins < boundary),
            batch_size,
            labels=jnp.abs(boundary - origins),
        )
        return Windows(drawn - lookback + 1, used), active

    def origins(self, starts: Int[AnyArray, "*windows"]) -> Int[AnyArray, "*windows predicting"]:
        """Return the last step of each window."""
        return starts[..., None] + self.split.lookback - 1

    def validation_starts(self) -> Int[np.ndarray, " window"]:
        """Return one window for each validation origin."""
        return self.split.validation_origins - self.split.lookback + 1


TrainingMode: TypeAlias = Sequence | Windowed
"""How windows are drawn, and which of their steps predict.

``last_only``: whether a network has outputs at the last step of a window alone
"""
MODES: dict[str, type[TrainingMode]] = {"sequence": Sequence, "windowed": Windowed}
