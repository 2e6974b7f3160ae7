"""Hyperparameter search with one member per series and candidate.

Successive halving: all candidates train for a few epochs, each series keeps its better ones, these
train for longer, and so on (Jamieson & Talwalkar 2016, AISTATS; Li et al. 2018, JMLR 18). The
candidates of a series share its data, which are not copied. A member depends only on its series'
name and its candidate, so :func:`forecaster.swarm.fit` alone would train the same winner.
"""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.swarm.arrays import check_data, shared_rows, take_members
from forecaster.swarm.checkpoints import Checkpoint, is_there
from forecaster.swarm.checks import SwarmError, broadcast_hyperparams, broadcast_limits, check_ids
from forecaster.swarm.estimators.swarm import Swarm
from forecaster.swarm.execution.fitting import Progress, fit
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import ArrayLike, Candidate, Data, Task
from forecaster.swarm.training.examples import check_validated
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.supervised import Model

if TYPE_CHECKING:
    import pandas as pd


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

        chosen = pd.DataFrame([dict(self.candidates[c]) for c in map(int, self.choice)])
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

    def draw(name: str, values: Sequence[Any]) -> Any:
        kinds = {np.asarray(each).dtype.kind for each in values}
        if isinstance(values, tuple) and len(values) == 2 and "f" in kinds and kinds <= set("fiu"):
            low, high = float(values[0]), float(values[1])
            if not 0 < low <= high:
                raise SwarmError(
                    f"{name}: expected a range (low, high) with 0 < low <= high; got {values}"
                )
            drawn: float = random.uniform(float(np.log(low)), float(np.log(high)))
            return float(np.exp(drawn))
        return values[int(random.integers(len(values)))]

    return [{name: draw(name, values) for name, values in ranges.items()} for _ in range(count)]


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
    - ``on_progress``: called after every block of epochs, with the progress of a rung's fit
    - ``machine``: ``chunk``, ``block``, ``lanes``, ``memory`` and ``executor`` of :func:`fit`

    Raises SwarmError if candidates have different names or a series has no validation example,
    and as :func:`fit` does.
    """
    began, ids = time.perf_counter(), tuple(ids)
    check_ids(ids)
    check_data(data, len(ids))
    check_validated(ids, data)
    _check(candidates, eta)
    limits = broadcast_limits(epochs, patience, len(ids))
    settings = broadcast_hyperparams(hyperparams or {}, len(ids))
    keys = member_keys(seed, ids)
    best_loss = np.full((len(ids), len(candidates)), np.inf)
    trained = np.zeros(best_loss.shape, int)
    groups = _groups(make_task, ids, candidates, sizes, settings)
    rungs = rungs_of(len(candidates), int(limits.epochs.max()), eta)
    for rung, (kept, last) in enumerate(rungs):
        stage = f"rung {rung + 1} of {len(rungs)}"
        rank = best_loss.argsort(1, kind="stable").argsort(1)
        for number, group in enumerate(groups):
            cells = rows, _ = group.rows, group.numbers
            group.active &= rank[cells] < kept
            if not group.active.any():
                continue
            most = np.minimum(limits.epochs[rows], last)
            group.result = result = fit(
                group.task,
                shared_rows(data, rows),
                group.names,
                seed=0,
                epochs=np.where(group.active, most, np.maximum(trained[cells], 1)),
                patience=limits.patience[rows],
                keys=keys[rows],
                hyperparams=group.hyperparams,
                previous=group.result,
                checkpoint=checkpoint and _stage(checkpoint, f"{rung}.{number}"),
                on_progress=on_progress and functools.partial(_report, on_progress, stage),
                **machine,
            )
            best_loss[cells] = np.where(np.isfinite(result.best_loss), result.best_loss, np.inf)
            trained[cells] = result.epochs
    choice = best_loss.argmin(1)  # candidates that were dropped on the way may win too
    winners = tuple(found for group in groups if (found := group.winners(choice, ids)))
    seconds = time.perf_counter() - began
    return Tuned(ids, tuple(candidates), choice, best_loss, trained, winners, seconds, seed)


def rungs_of(candidates: int, epochs: int, eta: int = 3) -> list[tuple[int, int]]:
    """Return the rungs of a search: the number of candidates per series, and the last epoch."""
    rungs = [(candidates, epochs)]
    while rungs[-1][0] > 1:
        rungs.append((math.ceil(rungs[-1][0] / eta), epochs))
    last = len(rungs) - 1
    return [(kept, max(1, round(epochs / eta ** (last - n)))) for n, (kept, _) in enumerate(rungs)]


@dataclasses.dataclass
class _Group:
    """The members of one size: every series with every candidate of that size.

    - ``rows``, ``numbers``: of each member, the position of its series and its candidate's number
    - ``active``: whether each member still trains; one that was dropped keeps its state
    - ``result``: of all members; None before the first rung
    """

    size: Candidate
    task: Task
    names: list[str]
    rows: Int[np.ndarray, " member"]
    numbers: Int[np.ndarray, " member"]
    hyperparams: dict[str, np.ndarray]
    active: Bool[np.ndarray, " member"]
    result: FitResult | None = None

    def winners(self, choice: Int[np.ndarray, " series"], ids: Sequence[str]) -> Winners | None:
        """Return the chosen members, under their series' names; None if there are none.

        ``choice``: the number of each series' candidate
        """
        chosen = np.flatnonzero(choice[self.rows] == self.numbers)
        if not len(chosen) or self.result is None:
            return None
        rows = self.rows[chosen]
        result = self.result.select(chosen, [ids[int(row)] for row in rows])
        return Winners(self.size, rows, result, take_members(self.hyperparams, chosen))


def _groups(
    make_task: Callable[..., Task],
    ids: Sequence[str],
    candidates: Sequence[Candidate],
    sizes: Sequence[str],
    hyperparams: Mapping[str, np.ndarray],
) -> list[_Group]:
    """Return the members of a search, those of one size together."""
    by_size: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for number, candidate in enumerate(candidates):
        size = tuple((name, candidate[name]) for name in sizes if name in candidate)
        by_size.setdefault(size, []).append(number)
    groups: list[_Group] = []
    for size, some in by_size.items():
        rows, numbers = np.repeat(np.arange(len(ids)), len(some)), np.tile(some, len(ids))
        values = {name: given[rows] for name, given in hyperparams.items()}
        for name in [name for name in candidates[0] if name not in sizes]:
            values[name] = np.array([candidates[int(number)][name] for number in numbers])
        names = [f"{name}/{number}" for name in ids for number in some]
        members = make_task(**dict(size)), names, rows, numbers, values, np.ones(len(rows), bool)
        groups.append(_Group(dict(size), *members))
    return groups


def _report(report: Callable[[Progress], None], stage: str, progress: Progress) -> None:
    report(dataclasses.replace(progress, stage=stage))


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


def _stage(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Return the checkpoint of one rung and size; it resumes if its file exists."""
    path = checkpoint.path.with_name(f"{checkpoint.path.name}.{name}")
    resume = checkpoint.resume and is_there(path)
    return dataclasses.replace(checkpoint, path=path, resume=resume)
