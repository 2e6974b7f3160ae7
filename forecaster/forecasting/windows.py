"""Which steps of a history are learned from, validated on and forecast from; windows by index.

Histories are aligned at their end (:class:`~forecaster.series.Histories`). With ``steps`` in all
and the last of them held back, as many as the series has rows to spare:

    ... training targets ...  boundary | validation targets ... steps - 1

A training target never lies past the boundary; a forecast made at the boundary is the first whose
targets are validated. Windows are never cut out and stored: the history stays on the device once
and a window is a start index into it, gathered inside the training step.

How windows are drawn, and which of their steps predict, is a :class:`TrainingMode`.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

AnyArray = TypeVar("AnyArray", Array, np.ndarray)  # the same arithmetic on a device and a host
Step: TypeAlias = int | Int[Array, ""]
Steps: TypeAlias = int | Int[Array, "..."]


@dataclasses.dataclass(frozen=True)
class Split:
    """Static sizes of windows and spans; the same for every member.

    - ``steps``: of the longest history
    - ``lookback``: steps of a window
    - ``burn_in``: steps of a window that only warm up the state
    - ``horizon``: steps ahead that are forecast
    - ``validation``: the latest steps that are held back of any series, at most
    - ``shortest_validation``: at least
    """

    steps: int
    lookback: int
    burn_in: int
    horizon: int
    validation: int
    shortest_validation: int

    @property
    def latest_boundary(self) -> int:
        """The last step that training may see as a target, of any member."""
        return self.steps - self.shortest_validation - 1

    @property
    def validation_origins(self) -> Int[np.ndarray, " origin"]:
        """The steps whose forecasts are validated, of members that hold back the most."""
        return np.arange(self.steps - self.validation - 1, self.steps - 1)

    def target_steps(self, origins: Int[AnyArray, "*origins"]) -> Int[AnyArray, "*origins horizon"]:
        """The steps that forecasts made at these steps are about."""
        return origins[..., None] + 1 + np.arange(self.horizon)

    def targets_within(
        self, origins: Int[AnyArray, "*origins"], earliest: Step, latest: Step
    ) -> Bool[AnyArray, "*origins horizon"]:
        """Which targets count: of forecasts made from one step on, up to another."""
        return (origins >= earliest)[..., None] & (self.target_steps(origins) <= latest)


class Windows(NamedTuple):
    """Windows of one member; in an epoch's batches both arrays have a leading axis of batches.

    - ``starts``: the first step of each, which may lie before a history's first
    - ``used``: False where a batch has no window
    """

    starts: Int[Array, "*batch window"]
    used: Bool[Array, "*batch window"]


class Span(NamedTuple):
    """What of a history a member learns from.

    - ``first``: the first step that may be an input
    - ``boundary``: the last step that may be a training target
    """

    first: Step
    boundary: Step


class TrainingMode(Protocol):
    """How windows are drawn, and which of their steps predict.

    ``last_only``: whether a network gives outputs at the last step of a window or at every step.
    """

    last_only: ClassVar[bool]

    @property
    def split(self) -> Split:
        """Sizes of windows and spans."""
        ...

    def batches(
        self, key: Array, span: "Span", batch_size: int
    ) -> tuple[Windows, Bool[Array, " batch"]]:
        """An epoch's training windows, in batches, and which batches hold any.

        ``span``: the member's. What is drawn does not depend on how long other members' histories
        are.
        """
        ...

    def starts(
        self, part: Float[Array, "*window"], first: Steps, boundary: Steps
    ) -> Int[Array, "*window"]:
        """The first steps of windows that lie so far into a training span, from 0 to 1."""
        ...

    def origins(self, starts: Int[AnyArray, "*windows"]) -> Int[AnyArray, "*windows predicting"]:
        """The steps of windows at which forecasts are made."""
        ...

    def validation_starts(self) -> Int[np.ndarray, " window"]:
        """Windows whose predicting steps hold each validation origin once."""
        ...


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Every step of a window after its burn-in predicts."""

    split: Split
    last_only: ClassVar[bool] = False

    def batches(
        self, key: Array, span: Span, batch_size: int
    ) -> tuple[Windows, Bool[Array, " batch"]]:
        """Random windows, about as many as cover the member's training span once.

        Stratified: each batch has one start in each of ``batch_size`` equal parts of that span.
        """
        whole = Span(0, self.split.latest_boundary)
        steps = jnp.arange(max(1, self._covering_batches(whole, batch_size)))
        keys = jax.vmap(lambda step: jax.random.fold_in(key, step))(steps)
        part = jax.vmap(lambda k: jax.random.uniform(k, (batch_size,)))(keys)
        offset = (jnp.arange(batch_size) + part) / batch_size
        starts = self.starts(offset, *span)
        active = steps < jnp.maximum(1, self._covering_batches(span, batch_size))
        return Windows(starts, jnp.ones(starts.shape, bool)), active

    def starts(
        self, part: Float[Array, "*window"], first: Steps, boundary: Steps
    ) -> Int[Array, "*window"]:
        """The first steps of windows that lie so far into a training span, from 0 to 1."""
        latest = boundary - self.split.lookback
        earliest = jnp.minimum(first, latest)
        return earliest + (part * (latest - earliest + 1)).astype(int)

    def origins(self, starts: Int[AnyArray, "*windows"]) -> Int[AnyArray, "*windows predicting"]:
        """All steps of the windows but the burn-in."""
        return starts[..., None] + np.arange(self.split.burn_in, self.split.lookback)

    def validation_starts(self) -> Int[np.ndarray, " window"]:
        """Windows whose predicting steps tile the validation origins, from the latest back."""
        split = self.split
        stride = split.lookback - split.burn_in
        count = math.ceil(split.validation / stride)
        return split.steps - 1 - split.lookback - stride * np.arange(count)

    def _covering_batches(self, span: Span, batch_size: int) -> Step:
        """How many batches of windows cover a member's training span once, to the nearest."""
        covered = (self.split.lookback - self.split.burn_in) * batch_size
        return (2 * (span.boundary - span.first) + covered) // (2 * covered)


@dataclasses.dataclass(frozen=True)
class Windowed:
    """Only the last step of a window predicts."""

    split: Split
    last_only: ClassVar[bool] = True

    def batches(
        self, key: Array, span: Span, batch_size: int
    ) -> tuple[Windows, Bool[Array, " batch"]]:
        """All windows that end before the boundary, each once, in random order."""
        from forecaster.swarm import shuffled_batches

        lookback = self.split.lookback
        first, boundary = span
        origins = jnp.arange(self.split.latest_boundary)
        whole = jnp.minimum(first + lookback - 1, boundary - 1)
        # Labels count from the end: a longer history of another member shifts nothing.
        drawn, used, active = shuffled_batches(
            key,
            (origins >= whole) & (origins < boundary),
            batch_size,
            labels=jnp.abs(boundary - origins),
        )
        return Windows(drawn - lookback + 1, used), active

    def starts(
        self, part: Float[Array, "*window"], first: Steps, boundary: Steps
    ) -> Int[Array, "*window"]:
        """The first steps of windows that lie so far into a training span, from 0 to 1."""
        whole = jnp.minimum(first, boundary - self.split.lookback)
        return whole + (part * (boundary - self.split.lookback - whole + 1)).astype(int)

    def origins(self, starts: Int[AnyArray, "*windows"]) -> Int[AnyArray, "*windows predicting"]:
        """The last step of each window."""
        return starts[..., None] + self.split.lookback - 1

    def validation_starts(self) -> Int[np.ndarray, " window"]:
        """A window for each validation origin."""
        return self.split.validation_origins - self.split.lookback + 1


MODES: dict[str, type[Sequence] | type[Windowed]] = {"sequence": Sequence, "windowed": Windowed}


def gather(
    features: Float[Array, "step feature"],
    first: Step,
    starts: Int[Array, " window"],
    lookback: int,
) -> tuple[Float[Array, "window lookback feature"], Float[Array, "window lookback"]]:
    """Cut windows out of one history.

    - ``features``: of every step
    - ``first``: the first step that may be an input
    - ``starts``: the first step of each window, which may lie before step 0
    - ``lookback``: steps of a window

    Returns inputs, zero where there is nothing, and a mask that is 1.0 where there is.
    """
    steps = starts[:, None] + jnp.arange(lookback)  # (window, lookback)
    valid = (steps >= first).astype(features.dtype)
    inputs = jnp.take(features, steps, axis=0, mode="clip")
    return inputs * valid[..., None], valid
