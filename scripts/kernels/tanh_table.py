"""Fit the polynomials of tanh in ``tanh_table.h`` again.

    python scripts/kernels/tanh_table.py [DEGREE]
    python scripts/kernels/tanh_table.py --quick

There are 32 polynomials, one for each whole number that |x| times SCALE rounds to; the first has no
constant, so that tanh(0) is 0. Chooses the scale with the smallest maximum error, and prints this
error; ``--quick`` tries one scale only, and writes nothing.
"""

import sys
from pathlib import Path

import numpy as np

SEGMENTS = 32
TABLE = Path(__file__).parents[2] / "forecaster/swarm/native/tanh_table.h"


def fitted(x: np.ndarray, y: np.ndarray, powers: range) -> np.ndarray:
    """Fit coefficients with the least maximum error, by reweighted least squares (Lawson 1961)."""
    columns, weights = x[:, None] ** np.array(powers), np.ones_like(x)
    for _ in range(200):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(columns * root[:, None], y * root, rcond=None)[0]
        weights = weights * (np.abs(columns @ coefficients - y) + 1e-15)
        weights /= weights.sum()
    return coefficients


def polynomials(scale: float, degree: int) -> tuple[np.ndarray, float]:
    """Return coefficients (segment, power), and the maximum error, also beyond the last segment."""
    all_of_them, errors = [], [1 - np.tanh((SEGMENTS - 0.5) / scale)]
    nodes = np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    for segment in range(SEGMENTS):
        low, high = max(0, segment - 0.5) / scale, (segment + 0.5) / scale
        x = (nodes * (high - low) + high + low) / 2
        if segment:
            coefficients = fitted(x, np.tanh(x), range(degree + 1))
        else:  # relative to x, so that small numbers stay accurate
            coefficients = np.r_[0.0, fitted(x, np.tanh(x) / x, range(degree))]
        grid = np.linspace(low, high, 2000)
        values = np.polyval(coefficients.astype(np.float32)[::-1], grid)
        errors.append(np.abs(values - np.tanh(grid)).max())
        all_of_them.append(coefficients)
    return np.array(all_of_them), max(errors)


def main() -> None:
    quick = "--quick" in sys.argv
    degree = int(sys.argv[1]) if len(sys.argv) > 1 and not quick else 2
    scales = [4.0] if quick else np.arange(3.0, 7.0, 0.1)
    scale = min(scales, key=lambda scale: polynomials(scale, degree)[1])
    coefficients, error = polynomials(scale, degree)
    lines = [
        "// Written by scripts/kernels/tanh_table.py: tanh by 32 polynomials of "
        f"degree {degree}, off by {error:.0e} at most.",
        "#pragma once",
        f"static constexpr int TANH_DEGREE = {degree};",
        f"static constexpr float TANH_SCALE = {scale:.1f}f;",
        "alignas(64) static constexpr float TANH_TABLE[TANH_DEGREE + 1][32] = {",
    ]
    for power in coefficients.T:
        words = [f"{number:.9g}" for number in power]
        words = [word if "." in word or "e" in word else word + ".0" for word in words]
        rows = [", ".join(f"{word}f" for word in words[k : k + 6]) for k in range(0, 32, 6)]
        lines.append("    {" + ",\n     ".join(rows) + "},")
    if not quick:
        TABLE.write_text("\n".join([*lines, "};", ""]))
    sys.stdout.write(f"degree {degree}, scale {scale:.1f}: off by {error:.1e}\n")


if __name__ == "__main__":
    main()
