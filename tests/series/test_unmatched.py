"""Covariates known ahead that have no number at past rows of their series."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning
from forecaster.series import infer_frequency, say_findings
from forecaster.series.calendar import hours
from forecaster.series.findings import unmatched

HOURS = pd.date_range("2026-01-01", periods=300, freq="h")
TEMPERATURE = pd.DataFrame({"ds": HOURS, "temp": np.arange(300.0), "price": 1.0})


def loads(ids=("A", "B"), times=HOURS[:240]):
    y = np.sin(np.arange(len(times)))
    frames = [pd.DataFrame({"unique_id": i, "ds": times, "y": y}) for i in ids]
    return fc.load_panel(pd.concat(frames, ignore_index=True))


def check(panel, frame):
    say_findings([*unmatched(panel.with_future(frame))], len(panel.ids))


@pytest.mark.parametrize("ids", [False, True])
def test_a_coarse_file_is_named_with_its_share_and_an_example(ids):
    coarse = TEMPERATURE.assign(temp=TEMPERATURE["temp"].where(HOURS.hour % 3 == 0))
    if ids:
        every = TEMPERATURE.assign(unique_id="A")
        coarse = pd.concat([every, coarse.assign(unique_id="B")])
    count, names = ("1 of 2", "B") if ids else ("2 of 2", "A, B")
    said = (
        rf"no number at past rows of {count} series: {names} \('temp' at 67%, such as "
        r"2026-01-01 01:00:00; the nearest number is of 2026-01-01\)\. .*interpolate"
    )
    with pytest.warns(ForecasterWarning, match=said) as caught:
        check(loads(), coarse)
    assert len(caught) == 1 and "price" not in str(caught[0].message)


def test_no_word_for_whole_files_few_gaps_late_beginnings_and_lists_of_events():
    check(loads(), TEMPERATURE)
    check(loads(), TEMPERATURE.drop(index=range(50, 60)))
    check(loads(), TEMPERATURE[100:])
    check(loads(), pd.DataFrame({"ds": HOURS[::24]}))


def test_times_that_never_match_are_an_error_that_names_both():
    late = HOURS[:240] + pd.Timedelta(seconds=7)
    said = r"A has a row at 2026-01-01 00:00:07, .* nearest time .* is 2026-01-01\. .*past rows"
    with pytest.raises(DataError, match=said):
        check(loads(times=late), TEMPERATURE)
    with pytest.raises(DataError, match=r"A has a row at 2026-01-01.* nearest .*2026-01-11"):
        check(loads(), TEMPERATURE[240:])


def test_a_fit_says_it():
    config = fc.Config(horizon=24, model="auto", epochs=1)
    late = loads(times=HOURS[:240] + pd.Timedelta(seconds=7)).with_future(TEMPERATURE)
    with pytest.raises(DataError, match="no row of the series has a number of 'temp'"):
        fc.fit(late, config)


def test_hours_of_all_day_series_ask_no_exchange(monkeypatch):
    monkeypatch.setattr(hours, "_hours_of", lambda *_, **__: pytest.fail("asked an exchange"))
    jitter = np.random.default_rng(0).integers(0, 20, 300).astype("timedelta64[s]")
    assert infer_frequency((HOURS + jitter).to_numpy()).hours is None
