"""Tests that pictures draw the numbers of their frames."""

import dataclasses
import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import forecaster as fc
from forecaster.plotting import plot_forecast, plot_forecasts

DAYS = pd.bdate_range("2024-01-01", periods=6)


def labels(ax: Axes) -> list[str]:
    return ax.get_legend_handles_labels()[1]


def test_a_forecast_goes_on_from_the_latest_value_as_a_fan_of_bands():
    y = [1.0, 2.0, 3.0, 4.0]
    panel = fc.Panel.from_frame(pd.DataFrame({"unique_id": "a", "ds": DAYS[:4], "y": y}))
    forecast = pd.DataFrame(
        {"unique_id": ["a", "a", "b"], "ds": [DAYS[4], DAYS[5], DAYS[4]], "LSTM": [5.0, 6.0, 99.0],
         "LSTM-lo-50": [4.5, 5.0, 0], "LSTM-hi-50": [5.5, 7.0, 0], "LSTM-lo-97.5": [4.0, 4.0, 0],
         "LSTM-hi-97.5": [6.0, 8.0, 0], "probability_of_rise": 0.6}
    )  # fmt: skip
    ax = plot_forecast(panel, forecast, "a", history=3)
    history, median = ax.get_lines()
    np.testing.assert_array_equal(history.get_ydata(), [2, 3, 4])
    np.testing.assert_array_equal(median.get_ydata(), [4, 5, 6])
    assert labels(ax) == ["y", "97.5 % band", "50 % band", "LSTM median"]
    wide, narrow = (band.get_paths()[0].get_extents() for band in ax.collections)
    assert (wide.y0, wide.y1) == (4.0, 8.0) and (narrow.y0, narrow.y1) == (4.0, 7.0)


def test_several_series_have_one_legend_and_labels_on_every_panel():
    panel = fc.Panel.from_frame(
        pd.concat(pd.DataFrame({"unique_id": n, "ds": DAYS[:4], "y": [1.0, 2, 3, 4]}) for n in "ab")
    )
    ahead = {"ds": DAYS[4:], "LSTM": 4.5, "LSTM-lo-80": 4.0, "LSTM-hi-80": 5.0}
    forecast = pd.concat(pd.DataFrame({"unique_id": name, **ahead}) for name in "ab")
    figure = plot_forecasts(panel, forecast, ["a", "b"], "Forecasts for $x", history=2)
    figure.savefig(io.BytesIO(), format="png")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["y", "80 % band", "LSTM median"]
    assert figure.get_suptitle() == "Forecasts for $x"
    for name, ax in zip("ab", figure.axes, strict=True):
        assert ax.get_legend() is None
        assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title("left")) == ("date", "y", name)
        assert ax.get_title("right") == "4.00 on 2024-01-04"
        assert any(label.get_text() and label.get_visible() for label in ax.get_xticklabels())
        assert np.size(ax.get_lines()[0].get_xdata()) == 2


def test_opening_hours_are_those_of_the_panel_where_few_rows_of_it_are_left():
    days = pd.bdate_range("2024-01-01", periods=300)
    times = np.concatenate(
        [pd.date_range(d + pd.Timedelta(hours=9), periods=8, freq="h") for d in days]
    )
    y = np.arange(len(times), dtype=float)
    panel = fc.Panel.from_frame(pd.DataFrame({"unique_id": "a", "ds": times, "y": y}))
    latest = fc.Panel.from_frame(panel.to_frame().tail(252))
    assert latest.frequency.hours is not None and panel.frequency.hours is None
    latest = dataclasses.replace(latest, frequency=panel.frequency)
    ahead = pd.DataFrame({"unique_id": "a", "ds": times[-1:] + np.timedelta64(1, "D"), "LSTM": 1.0})
    whole, part = (
        plot_forecast(one, ahead, "a", history=60).get_lines()[0] for one in (panel, latest)
    )
    np.testing.assert_array_equal(part.get_xdata(), whole.get_xdata())


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_names_are_drawn_as_they_are_written(kind):
    """A ``$`` in a name must not begin a formula."""
    odd = r"$\frac{x$"
    panel = fc.Panel.from_frame(pd.DataFrame({"unique_id": odd, "ds": DAYS[:4], "y": 1.0}))
    forecast = pd.DataFrame(
        {"unique_id": odd, "ds": DAYS[4:], odd: 1.0, f"{odd}-lo-50": 0.5, f"{odd}-hi-50": 2.0}
    )
    ax = plot_forecast(panel, forecast, odd)
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(io.BytesIO(), format=kind)


def test_nights_and_weekends_of_intraday_sessions_take_no_room():
    days = pd.bdate_range("2026-11-02", "2026-11-20")
    times = pd.DatetimeIndex(
        [
            t
            for d in days
            for t in pd.date_range(d + pd.Timedelta(hours=9.5), periods=13, freq="30min")
        ]
    )
    panel = fc.Panel.from_frame(pd.DataFrame({"unique_id": "A", "ds": times, "close": 100.0}))
    ahead = pd.date_range("2026-11-23 09:30", periods=3, freq="30min")
    frame = pd.DataFrame({"unique_id": "A", "ds": ahead, "LSTM": [101.0, 102.0, 103.0]})
    ax = plot_forecast(panel, frame, "A", history=26)
    past, median = ax.get_lines()
    assert np.array_equal(np.asarray(past.get_xdata()), np.arange(26))
    assert np.asarray(median.get_xdata()).tolist() == [25, 26, 27, 28]
    labels = {text.get_position()[0]: text.get_text() for text in ax.get_xticklabels()}
    assert labels[0] == "09:30\n19 Nov" and labels[13] == "09:30\n20 Nov"
    assert labels[26] == "09:30\n23 Nov"
