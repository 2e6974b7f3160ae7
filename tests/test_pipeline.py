"""From a source to a saved model and forecasts of it, as functions."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from forecaster.home import Home
from forecaster.ingest import open_source
from forecaster.pipeline import Callbacks, DataRequest, fit_to_home, predict_from_home, resume_fit

TICKERS = ["AAPL", "BRK-B", "XOM"]


@pytest.fixture(scope="module")
def data() -> DataRequest:
    return DataRequest(open_source("simulated"), TICKERS, start="2023-01-01")


@pytest.fixture(scope="module")
def calls() -> list[tuple[int, int]]:
    return []


@pytest.fixture(scope="module")
def home(tmp_path_factory, data, config, calls) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    on_series = Callbacks(on_series=lambda done, total: calls.append((done, total)))
    fit_to_home(home, data, config, 0, callbacks=on_series)
    return home


def test_a_saved_fit_is_the_latest_run_and_says_where_it_came_from(home, config, calls):
    run = home.latest_run()
    provenance = fc.load(run).provenance
    assert provenance["source"] == "simulated" and provenance["start"] == "2023-01-01"
    assert provenance["end"] is None and provenance["last"] == "2025-12-31"
    assert not home.unfinished.exists()
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_the_same_request_gives_the_same_forecasts(home, data, config, tmp_path):
    other = Home(tmp_path)
    saved = fit_to_home(other, data, config, 0)
    assert saved.folder == other.latest_run() and saved.stale == {} and saved.seconds > 0
    first, second = (predict_from_home(h, None, (80,)).frame for h in (home, other))
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_tickers_are_found_in_any_spelling_and_others_named(home):
    prediction = predict_from_home(home, ["aapl", "brk.b", "APL"], (80,))
    assert list(prediction.panel.ids) == ["AAPL", "BRK-B"] and prediction.simulated
    assert list(prediction.unknown) == ["APL"] and "near: AAPL" in prediction.unknown["APL"]
    assert set(prediction.late) == {"AAPL", "BRK-B"} and min(prediction.late.values()) > 0
    assert np.isfinite(prediction.frame["LSTM"]).all()
    with pytest.raises(ModelError, match="APL: not in the latest model"):
        predict_from_home(home, ["APL"], (80,))


def test_a_wrong_mask_and_a_missing_fit_are_clear_errors(data, config, tmp_path):
    wrong = DataRequest(data.source, TICKERS, mask=("bad",))
    with pytest.raises(UsageError, match="flag 'bad': expected some of copied"):
        fit_to_home(Home(tmp_path), wrong, config, 0)
    with pytest.raises(UsageError, match="no unfinished fit"):
        resume_fit(Home(tmp_path))
