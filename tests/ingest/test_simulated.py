"""The simulated market has the properties in its docstring."""

import numpy as np
import pandas as pd
from scipy import stats

from forecaster.ingest import open_source
from forecaster.ingest.sources.simulated import LAST

NAMES = [f"SIM{i:02d}" for i in range(60)]


def market(seed=0) -> dict[str, pd.DataFrame]:
    frames = {
        item.unique_id: item.frame for item in open_source("simulated", seed=seed).fetch(NAMES)
    }
    return {name: frame for name, frame in frames.items() if frame is not None}


def test_it_looks_like_a_market():
    frames = market()
    returns = {
        n: f.set_index("ds")["close"].apply(np.log).diff().dropna() for n, f in frames.items()
    }
    table = pd.DataFrame(returns)
    assert table.corr().to_numpy()[np.triu_indices(60, 1)].mean() > 0.1  # a common factor
    assert np.median([stats.kurtosis(r) for r in returns.values()]) > 1  # fat tails
    clustering = [r.abs().autocorr(1) for r in returns.values()]
    direction = [r.autocorr(1) for r in returns.values()]
    assert np.mean(clustering) > 0.05 and abs(np.mean(direction)) < 0.02
    lengths = np.array([len(f) for f in frames.values()])
    assert (lengths < lengths.max() * 0.9).any()  # listed late
    assert len(set(lengths)) > 5  # gaps
    for frame in frames.values():
        assert (frame["low"] <= frame[["open", "close"]].min(axis=1)).all()
        assert (frame["high"] >= frame[["open", "close"]].max(axis=1)).all()
        assert (frame[["open", "low", "close", "volume"]] > 0).all(axis=None)
        assert frame["ds"].is_monotonic_increasing and frame["ds"].iloc[-1] <= pd.Timestamp(LAST)


def test_a_path_depends_on_name_and_seed_alone():
    source = open_source("simulated", seed=4)
    first, alone = next(source.fetch(["KO", "GE"])).frame, next(source.fetch(["KO"])).frame
    assert first is not None and alone is not None
    pd.testing.assert_frame_equal(first, alone)
    other = next(open_source("simulated", seed=5).fetch(["KO"])).frame
    assert other is not None and not other["close"].equals(first["close"])
    assert len(source.tickers()) == 30
