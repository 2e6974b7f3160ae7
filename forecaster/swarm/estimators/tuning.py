"""Hyperparameter search with one member per series and candidate.

Successive halving: all candidates train for a few epochs, each series keeps its better ones, these
train for longer, and so on (Jamieson & Talwalkar 2016, AISTATS; Li et al. 2018, JMLR 18). The
candidates of a series share its data, which are not copied. A member depends only on its series'
name and its candidate, so :func:`forecaster.swarm.fit` alone would train the same winner.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from forecaster.swarm.arrays.data import check_data, shared_rows
from forecaster.swarm.arrays.members import write_members
from forecaster.swarm.checkpoints.checkpoint import Checkpoint, is_there
from forecaster.swarm.checkpoints.history import put_together
from forecaster.swarm.checks import SwarmError, broadcast_hyperparams, broadcast_limits, check_ids
from forecaster.swarm.estimators.swarm import Swarm
from forecaster.swarm.execution.fitting import Progress, fit
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import ArrayLike, Data, Limits, Task
from forecaster.swarm.training.examples import check_validated
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.supervised import Model

if TYPE_CHECKING:
    import pandas as pd

Candidate: TypeAlias = Mapping[str, Any]
"""Values by name: hyperparameters, and arguments that determine a network's size."""


@dataclasses.dataclass(frozen=True)
class Winners:
    """The chosen members of one size.

    - ``rows``: positions of their series among the ids
    - ``result``: their states and losses
    """

    size: Candidate
    rows: Int[np.ndarray, " winner"]
    result: FitResult
    hyperparams: Mapping[str, np.ndarray]  # by name, (winner,)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The result of a search: each series' choice, all candidates' losses, and the winners."""

    ids: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    choice: Int[np.ndarray, " series"]  # number of the candidate with the lowest validation loss
    best_loss: Float[np.ndarray, "series candidate"]  # lowest validation loss
    epochs: Int[np.ndarray, "series candidate"]  # epochs trained
    winners: tuple[Winners, ...]  # the chosen members, by size
    seconds: float
    seed: int

    def __repr__(self) -> str:
        best = self.best_loss.min(1)
        return (
            f"Tuned: {len(self.ids)} series, {len(self.candidates)} candidates, lowest losses "
            f"{best.min():.4g} to {best.max():.4g}, {self.seconds:.1f} s"
        )

    def swarms(self, model: Callable[..., Model], **options: Any) -> tuple[Swarm, ...]:
        """Return the winners as swarms, one per size, to use and to train further.

        - ``model``: a function ``model(**sizes)`` that returns the model of a size
        - ``options``: ``loss``, ``optimizer`` and other arguments of :class:`Swarm`, as for the
          task; hyperparameters and seed are those of the search

        Raises SwarmError if the model or the optimiser does not match.
        """
        return tuple(
            Swarm.from_result(
                winners.result,
                model(**winners.size),
                hyperparams=winners.hyperparams,
                seed=self.seed,
                **options,
            )
            for winners in self.winners
        )

    def summary(self) -> "pd.DataFrame":
        """Return a row per series: its choice, its loss, and the epochs of all its candidates."""
        import pandas as pd

        chosen = pd.DataFrame([dict(self.candidates[c]) for c in _integers(self.choice)])
        rows = np.arange(len(self.ids))
        chosen["best_loss"] = self.best_loss[rows, self.choice]
        chosen["epochs_tried"] = self.epochs.sum(1)
        return chosen.set_axis(pd.Index(self.ids, name="id"))


def grid_candidates(**values: Sequence[Any]) -> list[Candidate]:
    """Combine all values, as in ``grid_candidates(learning_rate=[0.1, 0.01], hidden=[4, 8])``."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def random_candidates(
    count: int, seed: int = 0, **ranges: tuple[float, float] | Sequence[Any]
) -> list[Candidate]:
    """Draw candidates, as in ``random_candidates(20, learning_rate=(1e-4, 1e-1), hidden=[4, 8])``.

    A pair of positive floats is a range, drawn from log-uniformly; any other sequence is a list of
    choices. Raises SwarmError for a range other than (low, high) with 0 < low <= high.
    """
    random = np.random.default_rng(seed)

    def draw(values: Sequence[Any]) -> Any:
        kinds = {np.asarray(each).dtype.kind for each in values}
        if isinstance(values, tuple) and len(values) == 2 and "f" in kinds and kinds <= set("fiu"):
            low, high = float(values[0]), float(values[1])
            if not 0 < low <= high:
                raise SwarmError(f"range: expected (low, high) above 0; got {values}")
            drawn: float = random.uniform(float(np.log(low)), float(np.log(high)))
            return float(np.exp(drawn))
        return values[int(random.integers(len(values)))]

    return [{name: draw(values) for name, values in ranges.items()} for _ in range(count)]


def tune(
    make_task: Callable[..., Task],
    data: Data,
    ids: Sequence[str],
    candidates: Sequence[Candidate],
    *,
    seed: int,
    epochs: ArrayLike,
    patience: ArrayLike | None = None,
    hyperparams: Mapping[str, ArrayLike] | None = None,
    sizes: Sequence[str] = ("hidden",),
    eta: int = 3,
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **machine: Any,
) -> Tuned:
    """Find each series' best candidate by validation loss.

    - ``make_task``: a function ``make_task(**sizes)`` that returns the task of a size
    - ``data``: a pytree of arrays (series, ...), or :class:`Shared` ones
    - ``ids``: the series' unique names
    - ``candidates``: values by name, the same names in each; see :func:`grid_candidates` and
      :func:`random_candidates`
    - ``seed``: determines, together with a series' name, the random key of all its members
    - ``epochs``: the maximum number of epochs of the last rung; a number, or an array (series,)
    - ``patience``: a member stops after this many epochs without a better validation loss; a
      number, an array (series,), or None for ``epochs``
    - ``hyperparams``: those that candidates do not set; by name, a scalar or an array (series,)
    - ``sizes``: names of the candidates' values that are arguments of ``make_task``, each
      combination with its own compiled program; all other values are hyperparameters
    - ``eta``: each rung keeps one in ``eta`` candidates and trains ``eta`` times as long
    - ``checkpoint``: see :class:`Checkpoint`; each rung and size has its own file
    - ``on_progress``: called after every block of epochs, with the progress of the whole search
    - ``machine``: ``chunk``, ``block``, ``lanes``, ``memory`` and ``executor`` of :func:`fit`

    Raises SwarmError if candidates have different names or a series has no validation example,
    and as :func:`fit` does.
    """
    ids = tuple(ids)
    check_ids(ids)
    check_data(data, len(ids))
    check_validated(ids, data)
    _check(candidates, eta)
    limits = broadcast_limits(epochs, patience, len(ids))
    settings = broadcast_hyperparams(hyperparams or {}, len(ids))
    search = _Search(make_task, data, ids, candidates, seed, limits, settings, sizes, machine)
    rungs = rungs_of(len(candidates), int(limits.epochs.max()), eta)
    seconds, epochs_before = 0.0, 0
    for rung, (kept, epochs_after) in enumerate(rungs):
        search.keep(kept)
        to_come = len(ids) * _epochs_of(rungs[rung:], epochs_before)  # maximum
        for number, size_class in enumerate(search.size_classes):
            if len(size_class.active):
                to_come -= len(size_class.active) * (epochs_after - epochs_before)
                stage = checkpoint and _stage(checkpoint, f"{rung}.{number}")
                report = on_progress and search.report(
                    on_progress, size_class, to_come, seconds, f"rung {rung + 1} of {len(rungs)}"
                )
                seconds += search.train(size_class, epochs_after, stage, report).seconds
        epochs_before = epochs_after
    return search.result(seconds)


def rungs_of(candidates: int, epochs: int, eta: int = 3) -> list[tuple[int, int]]:
    """Return the rungs of a search: the number of candidates per series, and the last epoch."""
    rungs = [(candidates, epochs)]
    while rungs[-1][0] > 1:
        rungs.append((math.ceil(rungs[-1][0] / eta), epochs))
    last = len(rungs) - 1
    return [(kept, max(1, round(epochs / eta ** (last - n)))) for n, (kept, _) in enumerate(rungs)]


def _epochs_of(rungs: Sequence[tuple[int, int]], before: int) -> int:
    """Return the total epochs of a series' candidates on these rungs, after epoch ``before``."""
    starts = [before, *(epochs for _, epochs in rungs)]
    return sum(
        kept * (epochs - start) for (kept, epochs), start in zip(rungs, starts, strict=False)
    )


class _SizeClass:
    """The members of one size: every series with every candidate of that size."""

    def __init__(self, size: Candidate, task: Task, numbers: Sequence[int], ids: Sequence[str]):
        self.size, self.task = size, task
        self.rows = np.repeat(np.arange(len(ids)), len(numbers))  # (member,) position of series
        self.numbers = np.tile(numbers, len(ids))  # (member,) number of candidate
        self.names = tuple(
            f"{ids[row]}/{number}"
            for row, number in zip(_integers(self.rows), _integers(self.numbers), strict=True)
        )
        self.active = np.arange(len(self.rows))  # the members that still train
        # Results of all members; a dropped member has the results from before it was dropped.
        self.result: FitResult | None = None

    def active_result(self) -> FitResult | None:
        """Return the results of the active members so far."""
        return self.result and self.result.select(self.active)

    def update(self, new: FitResult) -> None:
        """Write new results of the active members into ``result``."""
        if self.result is None:
            self.result = new
            return
        failed = {**self.result.failed, **new.failed}
        state = write_members(self.result.state, self.active, new.state)
        losses = put_together(self.result.losses, [(self.active, new.losses)])
        seconds = self.result.seconds + new.seconds
        self.result = FitResult(self.names, state, losses, seconds, failed)

    def winners(
        self,
        choice: Int[np.ndarray, " series"],
        ids: Sequence[str],
        hyperparams: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]],
    ) -> Winners | None:
        """Return the chosen members, under their series' names; None if there are none.

        - ``choice``: the number of each series' candidate
        - ``hyperparams``: returns hyperparameters from positions of series and candidate numbers
        """
        chosen = np.flatnonzero(choice[self.rows] == self.numbers)
        if not len(chosen) or self.result is None:
            return None
        rows = self.rows[chosen]
        result = self.result.select(chosen, [ids[row] for row in _integers(rows)])
        return Winners(self.size, rows, result, hyperparams(rows, self.numbers[chosen]))


class _Search:
    """A search under way."""

    def __init__(
        self,
        make_task: Callable[..., Task],
        data: Data,
        ids: tuple[str, ...],
        candidates: Sequence[Candidate],
        seed: int,
        limits: Limits,
        hyperparams: Mapping[str, np.ndarray],
        sizes: Sequence[str],
        machine: Mapping[str, Any],
    ):
        self.ids, self.candidates, self.data = ids, tuple(candidates), data
        self.limits, self.hyperparams = limits, hyperparams
        self._machine, self._keys, self.seed = machine, member_keys(seed, ids), seed
        self._tuned = [name for name in candidates[0] if name not in sizes]
        by_size: dict[tuple[tuple[str, Any], ...], list[int]] = {}
        for number, candidate in enumerate(candidates):
            size = tuple((name, candidate[name]) for name in sizes if name in candidate)
            by_size.setdefault(size, []).append(number)
        self.size_classes = [
            _SizeClass(dict(size), make_task(**dict(size)), numbers, ids)
            for size, numbers in by_size.items()
        ]
        self._loss = np.full((len(ids), len(candidates)), np.inf)
        self._epochs = np.zeros(self._loss.shape, int)

    def train(
        self,
        size_class: _SizeClass,
        epochs: int,
        checkpoint: Checkpoint | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> FitResult:
        """Train a size class's active members up to this epoch."""
        rows, numbers = size_class.rows[size_class.active], size_class.numbers[size_class.active]
        result = fit(
            size_class.task,
            shared_rows(self.data, rows),
            [size_class.names[member] for member in size_class.active],
            seed=0,
            epochs=np.minimum(self.limits.epochs[rows], epochs),
            patience=self.limits.patience[rows],
            keys=self._keys[rows],
            hyperparams=self._hyperparams(rows, numbers),
            previous=size_class.active_result(),
            checkpoint=checkpoint,
            on_progress=on_progress,
            **self._machine,
        )
        size_class.update(result)
        usable = np.isfinite(result.best_loss)
        self._loss[rows, numbers] = np.where(usable, result.best_loss, np.inf)
        self._epochs[rows, numbers] = result.epochs
        return result

    def _hyperparams(self, rows: np.ndarray, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return members' hyperparameters, from positions of series and candidate numbers."""
        hyperparams = {name: values[rows] for name, values in self.hyperparams.items()}
        for name in self._tuned:
            values = [self.candidates[number][name] for number in _integers(numbers)]
            hyperparams[name] = np.array(values)
        return hyperparams

    def report(
        self,
        on_progress: Callable[[Progress], None],
        size_class: _SizeClass,
        to_come: int,
        seconds: float,
        stage: str,
    ) -> Callable[[Progress], None]:
        """Return a callback that turns a size class's progress into that of the search.

        ``to_come``: the maximum number of epochs after this size class.
        """
        active = size_class.rows[size_class.active], size_class.numbers[size_class.active]
        others = int(self._epochs.sum() - self._epochs[active].sum())

        def report(progress: Progress) -> None:
            on_progress(
                dataclasses.replace(
                    progress,
                    epochs_done=others + progress.epochs_done,
                    epochs_at_most=others + progress.epochs_at_most + to_come,
                    seconds=seconds + progress.seconds,
                    stage=stage,
                )
            )

        return report

    def keep(self, count: int) -> None:
        """Keep each series' ``count`` best candidates active."""
        rank = np.argsort(np.argsort(self._loss, axis=1, kind="stable"), axis=1)
        for size_class in self.size_classes:
            stays = (
                rank[size_class.rows[size_class.active], size_class.numbers[size_class.active]]
                < count
            )
            size_class.active = size_class.active[stays]

    def result(self, seconds: float) -> Tuned:
        """Return the result; candidates dropped on the way may win too."""
        choice = self._loss.argmin(1)
        winners = tuple(
            winners
            for size_class in self.size_classes
            if (winners := size_class.winners(choice, self.ids, self._hyperparams))
        )
        return Tuned(
            self.ids,
            self.candidates,
            choice,
            self._loss,
            self._epochs,
            winners,
            seconds,
            self.seed,
        )


def _check(candidates: Sequence[Candidate], eta: int) -> None:
    if not candidates:
        raise SwarmError("candidates: none; expected at least one")
    for candidate in candidates:
        if candidate.keys() != candidates[0].keys():
            raise SwarmError(
                f"candidates: expected the same names in each; got {sorted(candidates[0])} and "
                f"{sorted(candidate)}"
            )
    if eta < 2:
        raise SwarmError(f"eta: expected 2 or more; got {eta}")


def _integers(array: Int[np.ndarray, " item"]) -> list[int]:
    return [int(item) for item in array]


def _stage(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Return the checkpoint of one rung and size; it resumes if its file exists."""
    path = checkpoint.path.with_name(f"{checkpoint.path.name}.{name}")
    resume = checkpoint.resume and is_there(path)
    return dataclasses.replace(checkpoint, path=path, resume=resume)
