"""Hyperparameter search along the swarm's axis: every series tries every candidate.

Successive halving: all candidates train for a few epochs, each series keeps its better ones, these
train for longer, and so on (Jamieson & Talwalkar 2016, AISTATS; Li et al. 2018, JMLR 18). Data are
never copied: the candidates of a series share them. A member depends on its series' name and its
candidate alone, so the winner is what :func:`forecaster.swarm.fit` would have trained.
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
from forecaster.swarm.checkpoints.history import write_losses
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
"""Values by name: of hyperparameters, and of what decides a network's size."""


@dataclasses.dataclass(frozen=True)
class Winners:
    """The chosen members of one size: ``rows`` of the ids they belong to, and their training."""

    size: Candidate
    rows: Int[np.ndarray, " winner"]
    result: FitResult
    hyperparams: Mapping[str, np.ndarray]  # by name, (winner,)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a search came to: each series' choice, what all candidates achieved, and the winners."""

    ids: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    choice: Int[np.ndarray, " series"]  # of candidates: the one with the lowest validation loss
    best_loss: Float[np.ndarray, "series candidate"]  # the lowest validation loss it came to
    epochs: Int[np.ndarray, "series candidate"]  # spent
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
        """The winners as swarms, one for each size, to use and to train further.

        - ``model``: of a size, ``model(**sizes)``: what the task of this size was made of
        - ``options``: ``loss``, ``optimizer`` and others of :class:`Swarm`, as they were for the
          task; hyperparameters and seed are those of the search

        Raises SwarmError when the model or the optimiser is another.
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
        """A row per series: its choice, its loss, and the epochs of all that it tried."""
        import pandas as pd

        chosen = pd.DataFrame([dict(self.candidates[c]) for c in _integers(self.choice)])
        rows = np.arange(len(self.ids))
        chosen["best_loss"] = self.best_loss[rows, self.choice]
        chosen["epochs_tried"] = self.epochs.sum(1)
        return chosen.set_axis(pd.Index(self.ids, name="id"))


def grid_candidates(**values: Sequence[Any]) -> list[Candidate]:
    """Every combination, e.g. ``grid_candidates(learning_rate=[1e-3, 1e-2], hidden=[4, 8])``."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def random_candidates(
    count: int, seed: int = 0, **ranges: tuple[float, float] | Sequence[Any]
) -> list[Candidate]:
    """Random candidates, e.g. ``random_candidates(20, learning_rate=(1e-4, 1e-1), hidden=[4, 8])``.

    From a pair of positive floats a value between them is drawn log-uniformly; of anything else
    one item is chosen.
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
    """Find each series' own best candidate by its validation loss.

    - ``make_task``: the task of a size, ``make_task(**sizes)``
    - ``data``: a pytree of arrays (series, ...), or :class:`Shared` ones
    - ``ids``: the series' names, each once
    - ``candidates``: values by name, the same names in each; see :func:`grid_candidates` and
      :func:`random_candidates`
    - ``seed``: with a series' name it decides the random key of all its members
    - ``epochs``: how long a member of the last rung trains at the most; a number, or an array
      (series,)
    - ``patience``: epochs without a better validation loss after which a member stops; a number, an
      array (series,), or None for as many as ``epochs``
    - ``hyperparams``: those that candidates do not set; by name, a scalar or an array (series,)
    - ``sizes``: the candidates' names that go to ``make_task``, one compiled shape for each
      combination; the others are hyperparameters
    - ``eta``: one in so many candidates stays at each of the rungs, and each rung is so many times
      as long as the one before
    - ``checkpoint``: see :class:`Checkpoint`; there is a file for each rung and size
    - ``on_progress``: called after every block of epochs, with the progress of the whole search
    - ``machine``: ``chunk``, ``block``, ``lanes``, ``memory`` and ``executor`` of :func:`fit`

    Raises SwarmError when candidates differ in their names, when a series has no validation
    example, and what :func:`fit` raises.
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
        to_come = len(ids) * _epochs_of(rungs[rung:], epochs_before)  # at the most
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
    """Rungs of a search: how many candidates of a series train, and up to which epoch."""
    rungs = [(candidates, epochs)]
    while rungs[-1][0] > 1:
        rungs.append((math.ceil(rungs[-1][0] / eta), epochs))
    last = len(rungs) - 1
    return [(kept, max(1, round(epochs / eta ** (last - n)))) for n, (kept, _) in enumerate(rungs)]


def _epochs_of(rungs: Sequence[tuple[int, int]], before: int) -> int:
    """Epochs of all candidates of a series on these rungs, from an epoch on."""
    starts = [before, *(epochs for _, epochs in rungs)]
    return sum(
        kept * (epochs - start) for (kept, epochs), start in zip(rungs, starts, strict=False)
    )


class _SizeClass:
    """The members of one size: every series with every candidate of that size."""

    def __init__(self, size: Candidate, task: Task, numbers: Sequence[int], ids: Sequence[str]):
        self.size, self.task = size, task
        self.rows = np.repeat(np.arange(len(ids)), len(numbers))  # (member,) of the series
        self.numbers = np.tile(numbers, len(ids))  # (member,) of the candidates
        self.names = tuple(
            f"{ids[row]}/{number}"
            for row, number in zip(_integers(self.rows), _integers(self.numbers), strict=True)
        )
        self.active = np.arange(len(self.rows))  # the members that still train
        # Of all members; those that were dropped are in it as they were then.
        self.result: FitResult | None = None

    def active_result(self) -> FitResult | None:
        """The results of the active members so far."""
        return self.result and self.result.select(self.active)

    def update(self, new: FitResult) -> None:
        """Take over what training left of the active members."""
        if self.result is None:
            self.result = new
            return
        failed = {**self.result.failed, **new.failed}
        state = write_members(self.result.state, self.active, new.state)
        losses = write_losses(self.result.losses, self.active, new.losses)
        seconds = self.result.seconds + new.seconds
        self.result = FitResult(self.names, state, losses, seconds, failed)

    def winners(
        self,
        choice: Int[np.ndarray, " series"],
        ids: Sequence[str],
        hyperparams: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]],
    ) -> Winners | None:
        """The members that their series have chosen, under the series' names.

        ``hyperparams``: of series and candidates, both by their numbers.
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
        """Train a size class's active members up to so many epochs."""
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
        """Of members, by the numbers of their series and of their candidates."""
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
        """Turn a size class's progress into that of the search, ``to_come``: epochs after it."""
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
        """Let only each series' best candidates train on."""
        rank = np.argsort(np.argsort(self._loss, axis=1, kind="stable"), axis=1)
        for size_class in self.size_classes:
            stays = (
                rank[size_class.rows[size_class.active], size_class.numbers[size_class.active]]
                < count
            )
            size_class.active = size_class.active[stays]

    def result(self, seconds: float) -> Tuned:
        """The best of all that was tried, also of what was dropped on the way."""
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
    """The checkpoint of one rung of one size; a rung that is done is not trained again."""
    path = checkpoint.path.with_name(f"{checkpoint.path.name}.{name}")
    resume = checkpoint.resume and is_there(path)
    return dataclasses.replace(checkpoint, path=path, resume=resume)
