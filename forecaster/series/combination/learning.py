"""Learn components and blends: what a panel's series share, and what each has of its own."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from forecaster.classical import Pool, count_of_features
from forecaster.series.causal import Ahead
from forecaster.series.combination.blend import (
    Blend,
    Errors,
    Sizes,
    Usual,
    blended,
    held_back_errors,
    learn_blends,
    learn_usual,
    no_errors,
)
from forecaster.series.combination.components import (
    Components,
    Kind,
    Lags,
    Name,
    Parts,
    components_ahead,
    fit_components,
    pools_of,
)
from forecaster.series.combination.counts import NO_PRIOR, CountPrior, learn_counts
from forecaster.series.combination.nature import Nature
from forecaster.series.panel.histories import held_back_rows

Row: TypeAlias = Float[np.ndarray, " step"]

_MOST_WEIGHED = 100  # series from which weights and sizes of errors are learned
_MOST_COUNTS = 250  # series from which the properties of counts are learned
_AT_ONCE = 2**22  # forecasts of components that are in memory at a time


class Blending(NamedTuple):
    """What the blends of a panel's series share.

    - ``pools``: the regressions of series of the same seasons, by :attr:`Kind.lags`
    - ``usual``: what blends have in common, by :attr:`Kind.parts`
    - ``counts``: what series of counts have in common
    - ``early``: the regressions without the rows held back, which only a fit needs
    """

    pools: tuple[tuple[Lags, Pool], ...] = ()
    usual: tuple[tuple[Parts, Usual], ...] = ()
    counts: CountPrior = NO_PRIOR
    early: tuple[tuple[Lags, Pool], ...] = ()

    def usual_of(self, kind: Kind) -> Usual | None:
        """Return what is usual of a kind, or else of errors of another kind of its seasons."""
        known = dict(self.usual)
        if kind.parts in known:
            return known[kind.parts]
        alike = [one for (_, seasons), one in self.usual if seasons == kind.seasons]
        return alike[0]._replace(errors=(1.0,) * len(kind.names)) if alike else None

    def fits(self, horizon: int) -> bool:
        """Return whether shapes and sizes fit together, as they may not in a file."""
        features = [
            count_of_features(seasons, yearly=yearly) for (seasons, yearly), _ in self.pools
        ]
        shapes = [(horizon, count, count) for count in features]
        return (
            [pool.gram.shape for _, pool in self.pools] == shapes
            and [pool.weights.shape for _, pool in self.pools] == [one[:2] for one in shapes]
            and all(len(names) == len(one.errors) for (names, _), one in self.usual)
        )


NOTHING = Blending()


def learn(
    rows: Sequence[Row],
    known: Sequence[Nature],
    horizon: int,
    alone: Name | None,
) -> Blending:
    """Return what the series of a panel share, from a sample of them.

    - ``rows``: the values of each series, without gaps
    - ``known``: the properties of each
    - ``alone``: the classical model that forecasts alone; None: components are blended
    """
    lengths = [len(row) for row in rows]
    cuts = [n - held_back_rows(n, horizon) for n in lengths]
    before = [row[:cut] for row, cut in zip(rows, cuts, strict=True)]
    kinds = kinds_of(rows, known, alone, cuts)
    early = pools_of(before, kinds, horizon)
    pools = pools_of(rows, kinds_of(rows, known, alone), horizon)
    every = max(1, len(rows) // _MOST_WEIGHED)
    fitted = fit_components(before[::every], kinds[::every], early, horizon, alone=bool(alone))
    usual = {
        fitted[numbers[0]].kind.parts: learn_usual(errors, sizes)
        for numbers, errors, sizes, _ in judged(rows[::every], known[::every], fitted, horizon)
    }
    made = Blending(tuple(pools.items()), tuple(usual.items()), NO_PRIOR, tuple(early.items()))
    counted = [number for number, one in enumerate(known) if one.counts]
    if alone is not None or not counted:
        return made
    some = counted[:: max(1, len(counted) // _MOST_COUNTS)]
    firsts = [rows[number][: max(len(rows[number]) // 2, 1)] for number in some]
    wholes, its = [rows[number] for number in some], [known[number] for number in some]
    fitted = fit_components(firsts, [kinds[number] for number in some], early, horizon)
    blends = usual_blends(wholes, its, fitted, made)
    bases = [base for base, _ in combine(wholes, its, fitted, blends, horizon)]
    return made._replace(counts=learn_counts(wholes, bases))


def kinds_of(
    rows: Sequence[Row],
    known: Sequence[Nature],
    alone: Name | None,
    learned: Sequence[int] | None = None,
) -> list[Kind]:
    """Return the kind of each series; ``learned``: the rows fitted on, by default all."""
    lengths = [len(row) for row in rows]
    return [
        Kind.of(rows, first, one.seasons, alone, sparse=one.sparse and not one.counts)
        for rows, first, one in zip(lengths, learned or lengths, known, strict=True)
    ]


def judged(
    rows: Sequence[Row], known: Sequence[Nature], fitted: Sequence[Components], horizon: int
) -> Iterator[tuple[list[int], Errors, Sizes, Float[np.ndarray, " series"]]]:
    """Compare components with the rows after those that they were fitted on.

    Yields the numbers of the series of each kind, the errors of their components, their sizes, and
    how many of their rows were held back.
    """
    errors = {
        number: held_back_errors(rows[number], made, known[number].seasons, fitted[number].learned)
        for number, made in _forecasts(rows, fitted, horizon)
    }
    sizes = Sizes.of(rows, [one.seasons for one in known])
    held = [
        min(len(row) - one.learned, held_back_rows(len(row), horizon))
        for row, one in zip(rows, fitted, strict=True)
    ]
    for parts in dict.fromkeys(one.kind.parts for one in fitted):
        some = [number for number, one in enumerate(fitted) if one.kind.parts == parts]
        stacked = np.stack([errors[number] for number in some], axis=1)
        yield some, stacked, sizes.only(some), np.array(held, float)[some]


def judged_blends(
    rows: Sequence[Row],
    known: Sequence[Nature],
    fitted: Sequence[Components],
    horizon: int,
    shared: Blending,
) -> list[Blend]:
    """Return the blend of each series, by the rows that its components were not fitted on."""
    made: dict[int, Blend] = {}
    for numbers, errors, sizes, held in judged(rows, known, fitted, horizon):
        usual = shared.usual_of(fitted[numbers[0]].kind)
        if usual is not None:
            made.update(zip(numbers, learn_blends(errors, sizes, held, usual), strict=True))
            continue
        for row, number in enumerate(numbers):  # each series by itself
            own, its = errors[:, [row]], sizes.only([row])
            (made[number],) = learn_blends(own, its, held[[row]], learn_usual(own, its))
    return [made[number] for number in range(len(rows))]


def usual_blends(
    rows: Sequence[Row], known: Sequence[Nature], fitted: Sequence[Components], shared: Blending
) -> list[Blend]:
    """Return blends that are usual, of series whose own errors are not known."""
    sizes = Sizes.of(rows, [one.seasons for one in known])
    made: list[Blend] = []
    for number, one in enumerate(fitted):
        count = len(one.kind.names)
        usual = shared.usual_of(one.kind) or Usual((1.0,) * count)
        made += learn_blends(no_errors(count), sizes.only([number]), np.zeros(1), usual)
    return made


def combine(
    rows: Sequence[Row],
    known: Sequence[Nature],
    components: Sequence[Components],
    blends: Sequence[Blend],
    horizon: int,
) -> Iterator[tuple[Ahead, Ahead]]:
    """Yield the blend of each series at each step, and the usual size of its errors."""
    for number, made in _forecasts(rows, components, horizon):
        both = blended(rows[number], made, known[number].seasons, horizon, blends[number])
        del made  # what is blended goes
        yield both


def _forecasts(
    rows: Sequence[Row], components: Sequence[Components], horizon: int
) -> Iterator[tuple[int, list[Ahead]]]:
    """Yield the forecasts of each series' components at each step, with the number of the series.

    Of a limited number of series at a time, to save memory.
    """
    parts = np.cumsum([len(row) * horizon for row in rows]) // _AT_ONCE
    for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(parts)) + 1):
        some: list[int] = part.tolist()
        made = components_ahead([rows[n] for n in some], [components[n] for n in some], horizon)
        for number in some:
            yield number, made.pop(0)
