"""Fits of a model in shards: the same bits, and what was lost is named."""

import dataclasses

import numpy as np
import pytest

import forecaster as fc
from forecaster.forecasting.fitting.validating import validate_part
from forecaster.skipped import Kind, Skipped
from forecaster.swarm import Failed
from tests.conftest import TICKERS
from tests.swarm.test_fitting import same
from tests.swarm.test_shards import Elsewhere


@pytest.mark.slow
def test_a_model_from_shards_is_the_same(panel, config, model):
    away = fc.fit(panel, config, seed=1, executor=(executor := Elsewhere(2)))
    assert same(away.networks.params, model.networks.params)
    assert away.report.equals(model.report)
    assert sorted(row for rows in executor.validated for row in rows) == [0, 1, 2, 3, 4]
    assert len(executor.validated) > 1
    np.testing.assert_array_equal(away.normal_scores, model.normal_scores)


def test_what_no_worker_could_validate_is_validated_here(panel, config, model):
    class Lost(Elsewhere):
        def run(self, function, common, parts, *, per_core=False):
            if function is not validate_part:
                yield from super().run(function, common, parts)
                return
            for part in parts:
                self.validated.append(part.rows)
                yield part, Failed("lost three times")

    away = fc.fit(panel, config, seed=1, executor=(executor := Lost(5)))
    assert executor.validated and away.skipped == {} and away.report.equals(model.report)
    np.testing.assert_array_equal(away.normal_scores, model.normal_scores)


def test_a_part_of_the_validation_has_only_the_steps_that_it_needs(panel, config, model):
    sent = []

    class Weighed(Elsewhere):
        def run(self, function, common, parts, *, per_core=False):
            for part, result in super().run(function, common, parts):
                if function is validate_part:
                    sent.append(part.span.features.shape)
                yield part, result

    fc.fit(panel, config, seed=1, executor=Weighed(5))
    steps = config.validation + config.lookback + config.horizon
    assert sent and all(shape[1] <= steps < panel.mask.sum(1).max() for shape in sent), sent


@pytest.mark.slow
def test_a_series_that_no_worker_could_train_is_skipped_by_name(panel, config, model):
    away = fc.fit(panel, config, seed=1, executor=Elsewhere(1, lost=[3]))
    assert away.skipped == {TICKERS[3]: Skipped(Kind.NOT_TRAINED, detail="lost three times")}
    kept = model.only([name for name in TICKERS if name != TICKERS[3]])
    assert away.ids == kept.ids and away.report.equals(kept.report)
    assert same(away.networks.params, kept.networks.params)


@pytest.mark.slow
def test_several_networks_each_from_a_common_start(panel, config):
    config = dataclasses.replace(config, start="pooled", members=2)
    whole = fc.fit(panel, config, seed=1)
    away = fc.fit(panel, config, seed=1, executor=Elsewhere(3))
    assert same(away.networks.params, whole.networks.params)
    lost = fc.fit(panel, config, seed=1, executor=Elsewhere(2, lost=[0]))
    assert str(lost.skipped[TICKERS[0]]) == "lost three times"
