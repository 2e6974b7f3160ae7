"""Learn components and blends: what a panel's series share, and what each has of its own."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from forecaster.classical import Pool, count_of_features
from forecaster.series.causal import Ahead
from forecaster.series.combination.blend import (
    Errors,
    Sizes,
    Usual,
    blended,
    held_back_errors,
    learn_blends,
    learn_usual,
)
from forecaster.series.combination.components import (
    Kind,
    Lags,
    Name,
    Parts,
    Row,
    components_ahead,
    fit_components,
    pools_of,
)
from forecaster.series.combination.counts import NO_PRIOR, CountPrior, learn_counts
from forecaster.series.combination.nature import Nature
from forecaster.series.panel.histories import held_back_rows

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

    def usual_of(self, kind: Kind) -> Usual:
        """Return what is usual of a kind, or else of errors of another kind of its seasons."""
        known, equal = dict(self.usual), Usual((1.0,) * len(kind.names))
        if kind.parts in known:
            return known[kind.parts]
        alike = [one for (_, seasons), one in self.usual if seasons == kind.seasons]
        return alike[0]._replace(errors=equal.errors) if alike else equal

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
    rows: Sequence[Row], known: Sequence[Nature], horizon: int, alone: Name | None
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
    some = fitted(before[::every], known[::every], kinds[::every], early.items(), horizon)
    usual = {
        some[numbers[0]].components.kind.parts: learn_usual(errors, sizes)
        for numbers, errors, sizes, _ in judged(rows[::every], some, horizon)
    }
    made = Blending(tuple(pools.items()), tuple(usual.items()), NO_PRIOR, tuple(early.items()))
    counted = [number for number, one in enumerate(known) if one.counts]
    if alone is not None or not counted:
        return made
    counted = counted[:: max(1, len(counted) // _MOST_COUNTS)]
    wholes, its = [rows[number] for number in counted], [known[number] for number in counted]
    firsts = [row[: max(len(row) // 2, 1)] for row in wholes]
    of = [kinds[number] for number in counted]
    its = with_blends(wholes, fitted(firsts, its, of, early.items(), horizon), made)
    bases = [base for base, _ in combine(wholes, its, horizon)]
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


def fitted(
    rows: Sequence[Row],
    known: Sequence[Nature],
    kinds: Sequence[Kind],
    pools: Iterable[tuple[Lags, Pool]],
    horizon: int,
) -> list[Nature]:
    """Return the series with components fitted to these rows."""
    made = fit_components(rows, kinds, dict(pools), horizon)
    both = zip(known, made, strict=True)
    return [dataclasses.replace(one, components=components) for one, components in both]


def judged(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int
) -> Iterator[tuple[list[int], Errors, Sizes, Float[np.ndarray, " series"]]]:
    """Compare components with the rows after those that they were fitted on.

    Yields the numbers of the series of each kind, the errors of their components, their sizes, and
    how many of their rows were held back.
    """
    learned = [one.components.learned for one in known]
    errors = {
        number: held_back_errors(rows[number], made, known[number].seasons, learned[number])
        for number, made in _forecasts(rows, known, horizon)
    }
    sizes = Sizes.of(rows, [one.seasons for one in known])
    held = [
        min(len(row) - first, held_back_rows(len(row), horizon))
        for row, first in zip(rows, learned, strict=True)
    ]
    every = [one.components.kind.parts for one in known]
    for parts in dict.fromkeys(every):
        some = [number for number, own in enumerate(every) if own == parts]
        stacked = np.stack([errors[number] for number in some], axis=1)
        yield some, stacked, sizes.only(some), np.array(held, float)[some]


def with_judged_blends(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int, shared: Blending
) -> list[Nature]:
    """Return the series with blends by the rows that their components were not fitted on."""
    out = list(known)
    for numbers, errors, sizes, held in judged(rows, known, horizon):
        usual = shared.usual_of(known[numbers[0]].components.kind)
        blends = learn_blends(errors, sizes, held, usual)
        for number, blend in zip(numbers, blends, strict=True):
            out[number] = dataclasses.replace(known[number], blend=blend)
    return out


def with_blends(rows: Sequence[Row], known: Sequence[Nature], shared: Blending) -> list[Nature]:
    """Return the series with usual blends for those whose own errors are not known."""
    out = list(known)
    for number, (row, one) in enumerate(zip(rows, known, strict=True)):
        if one.blend is None:
            kind = one.components.kind
            unknown = np.full((len(kind.names), 1, 1, 1), np.nan)
            sizes = Sizes.of([row], [one.seasons])
            (blend,) = learn_blends(unknown, sizes, np.zeros(1), shared.usual_of(kind))
            out[number] = dataclasses.replace(one, blend=blend)
    return out


def combine(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int
) -> Iterator[tuple[Ahead, Ahead]]:
    """Yield the blend of each series at each step, and the usual size of its errors."""
    for number, made in _forecasts(rows, known, horizon):
        one = known[number]
        assert one.blend is not None
        both = blended(rows[number], made, one.seasons, horizon, one.blend)
        del made  # what is blended goes
        yield both


def _forecasts(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int
) -> Iterator[tuple[int, list[Ahead]]]:
    """Yield the forecasts of each series' components at each step, with the number of the series.

    Of a limited number of series at a time, to save memory.
    """
    parts = np.cumsum([len(row) * horizon for row in rows]) // _AT_ONCE
    for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(parts)) + 1):
        some: list[int] = part.tolist()
        its = [known[number].components for number in some]
        made = components_ahead([rows[number] for number in some], its, horizon)
        for number in some:
            yield number, made.pop(0)
