"""Fits of a model in shards: the same bits, and what was lost is named."""

import pytest

import forecaster as fc
from forecaster.errors import Kind, Skipped
from tests.conftest import TICKERS
from tests.swarm.test_fitting import same
from tests.swarm.test_shards import Elsewhere


@pytest.mark.slow
def test_a_series_that_no_worker_could_train_is_skipped_by_name(panel, config, model):
    away = fc.fit(panel, config, seed=1, executor=Elsewhere(1, lost=[3]))
    assert away.skipped == {TICKERS[3]: Skipped(Kind.NOT_TRAINED, detail="lost three times")}
    kept = model.only([name for name in TICKERS if name != TICKERS[3]])
    assert away.ids == kept.ids and away.report.equals(kept.report)
    assert same(away.networks.params, kept.networks.params)
