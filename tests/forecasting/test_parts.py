"""A fit in parts is the fit in one piece; beyond many series a sample stands for all."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting.bands import Widths
from forecaster.forecasting.fitting import common as sampling
from forecaster.forecasting.fitting.common import Sampling, learn_common
from forecaster.forecasting.fitting.fit import fit_part, widths_of
from forecaster.forecasting.methods import usable_rows

SAMPLE = 3


def same_widths(one: Widths, other: Widths) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(sampling, "MOST_SERIES", SAMPLE)


def test_a_sample_depends_on_names_alone_and_is_all_of_few_series():
    names = [f"s{n}" for n in range(3_000)]
    sample = {names[row] for row in sampling.sample_of(names, 100)}
    assert len(sample) == sampling.MOST_SERIES
    again = names[::-1]
    assert {again[row] for row in sampling.sample_of(again, 100)} == sample
    more = [*names, "s3000"]
    assert len(sample - {more[row] for row in sampling.sample_of(more, 100)}) <= 1
    np.testing.assert_array_equal(sampling.sample_of(names[:1_000], 100), np.arange(1_000))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["adj_close", pytest.param("y", marks=pytest.mark.slow)])
def test_parts_together_are_the_fit_in_one_piece(panel, config, few, target, as_for_users):
    config = dataclasses.replace(config, start="pooled", epochs=2)
    if target == "y":
        frame = panel.to_frame()[["unique_id", "ds", "close"]].rename(columns={"close": "y"})
        late = (frame["unique_id"] == panel.ids[0]) & (frame["ds"] < "2024-01-01")
        panel = fc.Panel.from_frame(frame[~late])  # unequal histories, the longest in one part
    whole = fc.fit(panel, config, seed=1)
    found = usable_rows(panel, config)
    assert list(found.rows) == list(panel.ids) == found.trained and not found.skipped
    ids = list(found.rows)
    sampling = Sampling.draw(config, ids, found.trained, max(found.rows.values()))
    assert len(sampling.ids) == SAMPLE and sampling.networks
    common = learn_common(panel.only(sampling.ids), config, 1, sampling)
    parts = [
        fit_part(panel.only(names), config, 1, common) for names in (ids[:1], ids[1:3], ids[3:])
    ]
    for part in parts:
        alone = whole.only(part.model.ids)
        jax.tree.map(np.testing.assert_array_equal, alone.params, part.model.params)
        jax.tree.map(np.testing.assert_array_equal, alone.networks.start, part.model.networks.start)
        np.testing.assert_array_equal(alone.normal_scores, part.model.normal_scores)
        pd.testing.assert_frame_equal(alone.report, part.model.report, check_exact=True)
        # As they are saved: the arrays in them cannot be compared as a whole.
        learned = [model.transform.to_dict()["learned"] for model in (part.model, whole)]
        assert learned[0] == learned[1]
    scores = [part.sampled_scores for part in parts]
    assert sum(len(some.networks) for some in scores) == SAMPLE
    assert not any(len(some.without) for some in scores)
    same_widths(widths_of(config, scores), whole.widths)
    same_widths(widths_of(config, scores, tune=True), Widths.unit(config.horizon))
