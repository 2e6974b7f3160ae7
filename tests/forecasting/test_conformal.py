"""Bands: exact against a slow oracle, and covering what they promise."""

import math

import numpy as np
import pytest

from forecaster.forecasting.conformal import half_widths


def slow(residuals, first_new, level, memory, count, rate):
    """One series and horizon at a time, by the definition."""
    series, origins, horizon = residuals.shape
    out = np.full((series, count, horizon), np.nan)
    for k in range(series):
        for h in range(horizon):
            miss, widths = 1 - level / 100, {}
            for now in range(min(int(min(first_new)), origins - count), origins):
                known = now - h - 1
                if (
                    known in widths
                    and known >= first_new[k]
                    and np.isfinite(residuals[k, known, h])
                ):
                    miss += rate * (
                        (1 - level / 100) - (abs(residuals[k, known, h]) > widths[known])
                    )
                seen = np.abs(residuals[k, max(0, now - memory) : max(0, now - h), h])
                seen = sorted(seen[np.isfinite(seen)])
                rank = min(max(math.ceil((len(seen) + 1) * (1 - miss)), 1), len(seen))
                widths[now] = seen[rank - 1]
            out[k, :, h] = [widths[n] for n in range(origins - count, origins)]
    return out


@pytest.mark.parametrize("count", [1, 12])
def test_half_widths_are_those_of_the_definition(count):
    random = np.random.default_rng(0)
    residuals = random.standard_t(4, (3, 70, 2))
    residuals[1, :15] = np.nan
    residuals[:, -1] = np.nan
    first_new = np.array([60, 69, 50])
    got = half_widths(residuals, first_new, [80, 95], 40, count, rate=0.05)
    for level, widths in zip((80, 95), got, strict=True):
        np.testing.assert_allclose(widths, slow(residuals, first_new, level, 40, count, 0.05))


def test_exchangeable_errors_are_covered_at_the_level():
    random = np.random.default_rng(1)
    residuals = random.normal(size=(2000, 101, 1))
    first_new = np.full(2000, 100)
    for level, widths in zip((50, 80, 95), half_widths(residuals, first_new, [50, 80, 95], 100),
                             strict=True):  # fmt: skip
        covered = (np.abs(random.normal(size=2000)) <= widths[:, 0, 0]).mean()
        assert abs(covered - level / 100) < 0.03


def test_bands_follow_a_change_of_regime():
    """Errors double after the fit; a plain split would cover far less than promised."""
    random = np.random.default_rng(2)
    residuals = random.normal(size=(200, 900, 1))
    residuals[:, 200:] *= 2
    first_new = np.full(200, 200)
    widths = half_widths(residuals, first_new, [80], 200, count=400)[0]
    covered = np.abs(residuals[:, 500:]) <= widths
    assert abs(covered.mean() - 0.8) < 0.01
    still = half_widths(residuals[:, :201], first_new, [80], 200)[0, :, 0]
    assert (np.abs(residuals[:, 500:, 0]) <= still).mean() < 0.55


def test_the_future_has_no_part_in_a_band():
    random = np.random.default_rng(3)
    residuals = random.normal(size=(2, 80, 3))
    first_new = np.array([50, 60])
    before = half_widths(residuals, first_new, [80], 40, count=30)
    residuals[:, 65:] *= 100  # the band of origin p uses residuals up to p - h only
    after = half_widths(residuals, first_new, [80], 40, count=30)
    np.testing.assert_array_equal(before[:, :, : 66 - 50], after[:, :, : 66 - 50])
    assert (before[:, :, -1] != after[:, :, -1]).any()
