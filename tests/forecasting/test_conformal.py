"""Bands: exact against a slow oracle, and covering what they promise."""

import math

import numpy as np
import pytest

from forecaster.forecasting.conformal import half_widths


def slow(scores, fresh, level, memory, positions, rate):
    """One series and horizon at a time, by the definition."""
    series, origins, horizon = scores.shape
    out = np.full((series, positions, horizon), np.nan)
    for k in range(series):
        for h in range(horizon):
            miss, widths = 1 - level / 100, {}
            for now in range(min(int(min(fresh)), origins - positions), origins):
                known = now - h - 1
                if known in widths and known >= fresh[k] and np.isfinite(scores[k, known, h]):
                    miss += rate * ((1 - level / 100) - (abs(scores[k, known, h]) > widths[known]))
                seen = np.abs(scores[k, max(0, now - memory) : max(0, now - h), h])
                seen = sorted(seen[np.isfinite(seen)])
                rank = min(max(math.ceil((len(seen) + 1) * (1 - miss)), 1), len(seen))
                widths[now] = seen[rank - 1]
            out[k, :, h] = [widths[n] for n in range(origins - positions, origins)]
    return out


@pytest.mark.parametrize("positions", [1, 12])
def test_half_widths_are_those_of_the_definition(positions):
    random = np.random.default_rng(0)
    scores = random.standard_t(4, (3, 70, 2))
    scores[1, :15] = np.nan
    scores[:, -1] = np.nan
    fresh = np.array([60, 69, 50])
    got = half_widths(scores, fresh, [80, 95], 40, positions, rate=0.05)
    for level, widths in zip((80, 95), got, strict=True):
        np.testing.assert_allclose(widths, slow(scores, fresh, level, 40, positions, 0.05))


def test_exchangeable_errors_are_covered_at_the_level():
    random = np.random.default_rng(1)
    scores = random.normal(size=(2000, 101, 1))
    fresh = np.full(2000, 100)
    for level, widths in zip((50, 80, 95), half_widths(scores, fresh, [50, 80, 95], 100),
                             strict=True):  # fmt: skip
        covered = (np.abs(random.normal(size=2000)) <= widths[:, 0, 0]).mean()
        assert abs(covered - level / 100) < 0.03


def test_bands_follow_a_change_of_regime():
    """Errors double after the fit; a plain split would cover far less than promised."""
    random = np.random.default_rng(2)
    scores = random.normal(size=(200, 900, 1))
    scores[:, 200:] *= 2
    fresh = np.full(200, 200)
    widths = half_widths(scores, fresh, [80], 200, positions=400)[0]
    covered = np.abs(scores[:, 500:]) <= widths
    assert abs(covered.mean() - 0.8) < 0.01
    still = half_widths(scores[:, :201], fresh, [80], 200)[0, :, 0]
    assert (np.abs(scores[:, 500:, 0]) <= still).mean() < 0.55


def test_the_future_has_no_part_in_a_band():
    random = np.random.default_rng(3)
    scores = random.normal(size=(2, 80, 3))
    fresh = np.array([50, 60])
    before = half_widths(scores, fresh, [80], 40, positions=30)
    scores[:, 65:] *= 100  # the band of origin p uses scores up to p - h only
    after = half_widths(scores, fresh, [80], 40, positions=30)
    np.testing.assert_array_equal(before[:, :, : 66 - 50], after[:, :, : 66 - 50])
    assert (before[:, :, -1] != after[:, :, -1]).any()
