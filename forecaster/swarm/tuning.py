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
from typing import Any

import jax
import numpy as np

from forecaster.swarm.checkpoint import Checkpoint
from forecaster.swarm.checks import SwarmError, check_ids
from forecaster.swarm.data import Shared, check_rows
from forecaster.swarm.fitting import FitResult, Progress, fit, fitted_of, take_rows
from forecaster.swarm.keys import member_keys
from forecaster.swarm.task import Task
from forecaster.swarm.training import Losses, State

Candidate = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a search found. ``choice`` (series,): the candidate with the lowest validation loss."""

    ids: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    choice: np.ndarray  # (series,) of candidates
    best_loss: np.ndarray  # (series, candidate), the lowest validation loss it came to
    epochs: np.ndarray  # (series, candidate), epochs spent
    winners: tuple["Winners", ...]  # the chosen members, by size
    seconds: float

    def summary(self) -> Any:
        """A pandas DataFrame, a row per series: its choice, its loss, epochs of all tries."""
        import pandas as pd

        chosen = pd.DataFrame([dict(self.candidates[c]) for c in self.choice])
        rows = np.arange(len(self.ids))
        chosen["best_loss"] = self.best_loss[rows, self.choice]
        chosen["epochs_tried"] = self.epochs.sum(1)
        return chosen.set_axis(pd.Index(self.ids, name="id"))


@dataclasses.dataclass(frozen=True)
class Winners:
    """The chosen members of one size: ``rows`` of the ids they belong to, and their training."""

    size: Candidate
    rows: np.ndarray
    fitted: FitResult


def grid_candidates(**values: Sequence[Any]) -> list[Candidate]:
    """Every combination, e.g. ``grid_candidates(learning_rate=[1e-3, 1e-2], hidden=[4, 8])``."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def random_candidates(count: int, seed: int = 0, **ranges: Any) -> list[Candidate]:
    """Random candidates: a pair of positive floats is drawn log-uniformly between them, of anything
    else one is chosen; e.g. ``random_candidates(20, learning_rate=(1e-4, 1e-1), hidden=[4, 8, 16])``."""
    random = np.random.default_rng(seed)

    def one(values):
        if isinstance(values, tuple) and len(values) == 2:
            low, high = map(float, values)
            if not 0 < low <= high:
                raise SwarmError(f"range: expected (low, high) above 0; got {values}")
            return float(np.exp(random.uniform(np.log(low), np.log(high))))
        return values[int(random.integers(len(values)))]

    return [{name: one(values) for name, values in ranges.items()} for _ in range(count)]


def tune(
    make_task: Callable[..., Task],
    data: Any,
    ids: Sequence[str],
    candidates: Sequence[Candidate],
    *,
    seed: int,
    hyperparams: Mapping[str, Any],
    sizes: Sequence[str] = ("hidden",),
    eta: int = 3,
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **machine: Any,
) -> Tuned:
    """Find each series' own best candidate by its validation loss.

    ``candidates``: values by name, the same names in each, see :func:`grid_candidates` and :func:`random_candidates`. Names
    in ``sizes`` go to ``make_task(**sizes)``, one compiled shape for each combination; the others
    are hyperparameters and take the place of those in ``hyperparams``. ``data``: (series, ...). With
    ``eta`` = 3 a third of the candidates goes on at each of the rungs, which are three times as
    long one after the other; the last is ``hyperparams["epochs"]``. ``machine``: see :func:`fit`.
    """
    ids = tuple(ids)
    check_ids(ids)
    check_rows(data, len(ids), "data")
    search = _Search(
        make_task, data, ids, tuple(candidates), seed, hyperparams, sizes, eta, machine
    )
    rungs = rungs_of(len(candidates), int(np.max(hyperparams["epochs"])), eta)
    seconds, before = 0.0, 0
    for number, (kept, epochs) in enumerate(rungs):
        search.keep(kept)
        later = zip(rungs[number:], rungs[number + 1 :], strict=False)
        to_come = len(ids) * (
            kept * (epochs - before) + sum(k * (e - b) for (_, b), (k, e) in later)
        )
        for place, group in enumerate(search.groups):
            if len(group.active):
                to_come -= len(group.active) * (epochs - before)
                stage = checkpoint and _stage(checkpoint, f"{number}.{place}")
                report = on_progress and search.report(
                    on_progress, group, to_come, seconds, f"rung {number + 1} of {len(rungs)}"
                )
                seconds += search.train(group, epochs, stage, report).seconds
        before = epochs
    return search.result(seconds)


def rungs_of(candidates: int, epochs: int, eta: int = 3) -> list[tuple[int, int]]:
    """Rungs of a search: how many candidates of a series train, and up to which epoch."""
    rungs = [(candidates, epochs)]
    while rungs[-1][0] > 1:
        rungs.append((math.ceil(rungs[-1][0] / eta), epochs))
    last = len(rungs) - 1
    return [(kept, max(1, round(epochs / eta ** (last - n)))) for n, (kept, _) in enumerate(rungs)]


class _Group:
    """The members of one size: every series with every candidate of that size."""

    def __init__(self, size: Candidate, task: Task, numbers: Sequence[int], series: int):
        self.size, self.task = size, task
        self.rows = np.repeat(np.arange(series), len(numbers))  # (member,) of the series
        self.numbers = np.tile(numbers, series)  # (member,) of the candidates
        self.active = np.arange(len(self.rows))
        self.fitted: FitResult | None = (
            None  # all members, those that were dropped as they were then
        )

    def update(self, new: FitResult, names: Sequence[str]) -> None:
        """Take over what training left of the active members."""
        if self.fitted is None:
            self.fitted = new
            return
        width = new.losses.train.shape[1]

        def write(old, value):
            old = old.copy()
            old[self.active] = value
            return old

        state = jax.tree.map(write, self.fitted.state, new.state)
        losses = [
            write(np.pad(a, ((0, 0), (0, max(0, width - a.shape[1]))), constant_values=np.nan), b)
            for a, b in zip(self.fitted.losses, new.losses, strict=True)
        ]
        seconds = self.fitted.seconds + new.seconds
        self.fitted = fitted_of(tuple(names), State(*state), Losses(*losses), seconds)


class _Search:
    """A search under way."""

    def __init__(self, make_task, data, ids, candidates, seed, hyperparams, sizes, eta, machine):
        _check(candidates, hyperparams, eta)
        self.ids, self.candidates, self.hyperparams, self.data = ids, candidates, hyperparams, data
        self._machine, self._keys = machine, member_keys(seed, ids)
        self._tuned = [name for name in candidates[0] if name not in sizes]
        by_size: dict[tuple, list[int]] = {}
        for number, candidate in enumerate(candidates):
            size = tuple((name, candidate[name]) for name in sizes if name in candidate)
            by_size.setdefault(size, []).append(number)
        self.groups = [
            _Group(dict(size), make_task(**dict(size)), numbers, len(ids))
            for size, numbers in by_size.items()
        ]
        self._loss = np.full((len(ids), len(candidates)), np.inf)
        self._epochs = np.zeros(self._loss.shape, int)

    def train(self, group: _Group, epochs: int, checkpoint, on_progress) -> FitResult:
        """Train a group's active members up to so many epochs."""
        rows, numbers = group.rows[group.active], group.numbers[group.active]
        pairs = zip(group.rows, group.numbers, strict=True)
        names = [f"{self.ids[row]}/{number}" for row, number in pairs]
        hyperparams = {
            name: np.broadcast_to(v, len(self.ids))[rows] for name, v in self.hyperparams.items()
        }
        for name in self._tuned:
            hyperparams[name] = np.array([self.candidates[number][name] for number in numbers])
        hyperparams["epochs"] = np.minimum(hyperparams["epochs"], epochs)
        fitted = fit(
            group.task,
            Shared(self.data, rows),
            [names[place] for place in group.active],
            seed=0,
            keys=self._keys[rows],
            hyperparams=hyperparams,
            previous=group.fitted and take_rows(group.fitted, group.active),
            room_for=len(group.rows),
            checkpoint=checkpoint,
            on_progress=on_progress,
            **self._machine,
        )
        group.update(fitted, names)
        usable = np.isfinite(fitted.best_loss)
        self._loss[rows, numbers] = np.where(usable, fitted.best_loss, np.inf)
        self._epochs[rows, numbers] = fitted.epochs
        return fitted

    def report(self, on_progress, group: _Group, to_come: int, seconds: float, stage: str):
        """Turn a group's progress into that of the search, ``to_come``: epochs after this group."""
        active = group.rows[group.active], group.numbers[group.active]
        others = int(self._epochs.sum() - self._epochs[active].sum())

        def report(now: Progress) -> None:
            on_progress(
                dataclasses.replace(
                    now,
                    epochs_done=others + now.epochs_done,
                    epochs_at_most=others + now.epochs_at_most + to_come,
                    seconds=seconds + now.seconds,
                    stage=stage,
                )
            )

        return report

    def keep(self, count: int) -> None:
        """Let only each series' best candidates go on."""
        rank = np.argsort(np.argsort(self._loss, axis=1, kind="stable"), axis=1)
        for group in self.groups:
            going = rank[group.rows[group.active], group.numbers[group.active]] < count
            group.active = group.active[going]

    def result(self, seconds: float) -> Tuned:
        """The best of all that was tried, also of what was dropped on the way."""
        choice = self._loss.argmin(1)
        winners = []
        for group in self.groups:
            chosen = np.flatnonzero(choice[group.rows] == group.numbers)
            if len(chosen) and group.fitted is not None:
                rows = group.rows[chosen]
                mine = take_rows(group.fitted, chosen, [self.ids[row] for row in rows])
                winners.append(Winners(group.size, rows, mine))
        winners = tuple(winners)
        return Tuned(self.ids, self.candidates, choice, self._loss, self._epochs, winners, seconds)


def _check(candidates: Sequence[Candidate], hyperparams: Mapping[str, Any], eta: int) -> None:
    if not candidates:
        raise SwarmError("candidates: none; expected at least one")
    for candidate in candidates:
        if candidate.keys() != candidates[0].keys():
            raise SwarmError(
                f"candidates: expected the same names in each; got {sorted(candidates[0])} and "
                f"{sorted(candidate)}"
            )
    if "epochs" not in hyperparams or "patience" not in hyperparams:
        raise SwarmError(
            f"hyperparams: expected epochs and patience; got {', '.join(hyperparams) or 'none'}"
        )
    if eta < 2:
        raise SwarmError(f"eta: expected 2 or more; got {eta}")


def _stage(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """The checkpoint of one rung of one size; a rung that is done is not trained again."""
    path = checkpoint.path.with_name(f"{checkpoint.path.name}.{name}")
    resume = checkpoint.resume and path.exists()
    return dataclasses.replace(checkpoint, path=path, resume=resume)
