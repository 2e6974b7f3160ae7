"""A transform comes back from JSON, and one of a damaged file is refused."""

import copy
import dataclasses
import json

import numpy as np
import pytest

from forecaster.series import held_back_rows
from forecaster.series.any_series import AnySeries, LearnedOfAny
from forecaster.series.combination.counts import CountPrior
from forecaster.series.combination.learning import fitted, kinds_of, learn, with_judged_blends
from forecaster.series.combination.nature import Nature
from forecaster.series.common_volatility import OWN_TERMS, STATE_TERMS, CommonVolatility
from forecaster.series.effects import CalendarPrior, ResponsePrior
from forecaster.series.known_rows import KnownPriors
from forecaster.series.panel.covariates import Scaling
from forecaster.series.transform_by_name import read_transform
from forecaster.series.transforms import Transform
from tests.messages import refuses

HORIZON = 4


def seasonal(rows: int = 60, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    steps = np.arange(rows)
    return 50 + 0.3 * steps + 8 * np.sin(steps * np.pi / 6) + random.normal(size=rows)


ROWS = [seasonal(60), seasonal(40, 1), seasonal(75, 2), *(seasonal(9 + n, n) for n in range(3))]
NATURES = [Nature(seasons=(12,))] * 4 + [Nature(seasons=(4,)), Nature(seasons=(3, 6))]


def all_of(rows, known, learned):
    """Series with components and blends, the errors of which were held back."""
    first = [row[: len(row) - held_back_rows(len(row), HORIZON)] for row in rows]
    kinds = kinds_of(rows, known, None, list(map(len, first)))
    some = fitted(first, known, kinds, learned.early or learned.pools, HORIZON)
    return with_judged_blends(rows, some, HORIZON, learned)


TERMS = len(OWN_TERMS) + len(STATE_TERMS)
NAMES = ("a", "b", "c", "d", "e", "f")


def made() -> Transform:
    """Return a transform that has learned of everything."""
    blending = learn(ROWS, NATURES, HORIZON, None)
    natures = {
        name: dataclasses.replace(nature, responses=(0.5,))
        for name, nature in zip(NAMES, all_of(ROWS, NATURES, blending), strict=True)
    }
    known = KnownPriors(
        ResponsePrior((0.1,), (0.2,), (1.0,), 1),
        CalendarPrior(("month",), (0.1,) * 2, (0.0,) * 2, 0, "W-SUN"),
    )
    common = CommonVolatility(
        tuple(f"S{n}" for n in range(20)), (0.0,) * TERMS, (1.0,) * TERMS,
        ((0.1,) * (TERMS + 1),) * HORIZON, ((0.0, 0.5, 0.5),) * HORIZON,
    )  # fmt: skip
    blending = blending._replace(early=(), counts=CountPrior(mean=0.3))
    learned = LearnedOfAny(
        common_seasons=(12,), usually_counts=True, unit=0.1, known=known,
        blending=blending, volatility=0.02, events=(2.0,), common_volatility=common,
    )  # fmt: skip
    scaling = Scaling(("open",), dict.fromkeys(NAMES, ((0.0, 1.0),)), {}, {"kind": ("x", "y")})
    return AnySeries("combined", natures=natures, covariates=scaling, learned=learned)


SOUND = made()
STORED = json.loads(json.dumps(SOUND.to_dict()))


def test_all_comes_back():
    assert read_transform(STORED, HORIZON).to_dict() == SOUND.to_dict()


@pytest.mark.parametrize("horizon", [HORIZON - 1, HORIZON + 1])
def test_what_was_learned_for_another_horizon_is_refused(horizon):
    with refuses(ValueError):
        read_transform(STORED, horizon)


NATURE, SHARED = ("natures", "a"), ("learned", "known")
PARTS, VOLATILITY = (*NATURE, "components"), ("learned", "common_volatility")
COUNTS, POOL = ("learned", "blending", 2), ("learned", "blending", 0, 0)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("name",), ["x", None]), (("market",), ["abc", [5]]), (("alone",), ["moon"]),
        (("covariates", "scales", "a"), [[], [[0, 0]], [["x", 1]], [[0, 1], [0, 1]]]),
        ((*NATURE, "seasons"), [[0], [10**9], list(range(1, 60)), "7"]),
        ((*NATURE, "unit"), [0.0, 3.0]), ((*NATURE, "rhythm"), ["Y", 5]),
        ((*NATURE, "effects"), [[0.1]]), ((*NATURE, "responses"), [[0.1, 0.2], ["x"]]),
        ((*NATURE, "blend"), [[[0.5], 1.0, 0.5], 3]), ((*NATURE, "blend", 0, 0), [-0.5, 1e13]),
        ((*PARTS, 0), [[[["none", 99, False], [0.1], 1.0]]]), ((*PARTS, 1), [[0.5, 0.5]]),
        ((*PARTS, 3), [None, ["x", ""], [1.0, "AAAA"]]), ((*PARTS, 4), [-1, 10**30]),
        ((*PARTS, 5, 0), [["moon"], ["linear"] * 2, []]), ((*NATURE, "dip"), [[1], ["x", 2]]),
        (("natures", "b"), [{**STORED["natures"]["b"], "seasons": [], "dip": [1, 2]}]),
        (("learned", "common_seasons"), [[7] * 100_000, [0]]), (("learned", "unit"), [-1.0, 1e7]),
        (("learned", "volatility"), [-1, 1e9, True]), (("learned", "events"), [[2.0, 2.0], [0.1]]),
        ((*SHARED, 0, 0), [[], [0.1, 0.2]]), ((*SHARED, 0, 1), [[-0.1]]),
        ((*SHARED, 1, 0), [["moon"], ["month"] * 2, []]), ((*SHARED, 1, 3), [99]),
        ((*COUNTS, 0), ["0.1", 0.0]), ((*COUNTS, 4), [0.9, 1e300]),
        ((*POOL, 0), [[[12], 1], [[4, 12], False]]), ((*POOL, 1, 0, 3), ["AAAA"]),
        ((*VOLATILITY, 0), [[1, 2], ["S00"] * 20, []]), ((*VOLATILITY, 2), [[0.0] * TERMS]),
        ((*VOLATILITY, 3), [[], [[11.0] * (TERMS + 1)] * HORIZON]),
        ((*VOLATILITY, 4), [[], [[0.0, 0.5]] * HORIZON]), ((*VOLATILITY, 5), [["VIX"], 5]),
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_one_is_refused(path, values):
    for value in values:
        fields = copy.deepcopy(STORED)
        holder = fields
        for name in path[:-1]:
            holder = holder[name]
        assert holder[path[-1]] != value
        holder[path[-1]] = value
        with pytest.raises(ValueError, match="transform: "):
            read_transform(fields, HORIZON)


EACH = [("learned", one) for one in STORED["learned"]]
EACH += [("natures", "b", one) for one in STORED["natures"]["b"]]


@pytest.mark.parametrize("path", [*((one,) for one in STORED), *EACH])
def test_what_is_missing_is_named(path):
    fields = copy.deepcopy(STORED)
    *above, last = path
    holder = fields
    for name in above:
        holder = holder[name]
    del holder[last]
    with pytest.raises(ValueError, match=f"transform: .*{last}"):
        read_transform(fields, HORIZON)
