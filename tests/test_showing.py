"""Panels, models and pictures are shown in a few lines, and in notebooks as images."""

import base64
import io

import matplotlib.image
import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from nbclient import NotebookClient

import forecaster as fc
from forecaster.errors import Kind, Skipped, UsageError
from forecaster.series import Frequency, in_words
from tests.evaluation import handmade
from tests.messages import refuses

PLAIN = """
import pandas as pd
import forecaster as fc

days = pd.date_range("2024-01-01", periods=12)
wide = pd.DataFrame({"a": range(10), "b": range(10)}, days[:10], dtype=float)
panel = fc.load_panel(wide, wide=True)
ahead = {"ds": days[10:], "LSTM": [10.0, 11.0], "LSTM-lo-80": 9.0, "LSTM-hi-80": [11.0, 12.0]}
forecast = pd.DataFrame({"unique_id": "a", **ahead})
"""
CELLS = [
    'fc.plot_forecast(panel, forecast, "a")',
    'axes = fc.plot_forecast(panel, forecast, "a")\naxes.figure',
    'panel.plot("a")',
    "panel",
    "from matplotlib import pyplot as plt\n"
    'figure, axes = plt.subplots()\n_ = fc.plot_forecast(panel, forecast, "a", ax=axes)',
    'fc.plot_forecast(panel, forecast, "a")',  # after pyplot was imported
]


def outputs() -> list[list]:
    """Return the output of each cell, in a plain notebook."""
    cells = [nbformat.v4.new_code_cell(source) for source in (PLAIN, *CELLS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [cell["outputs"] for cell in notebook.cells[1:]]


def test_a_notebook_shows_pictures_once_and_a_panel_as_a_table():
    *before, (output,), drawn, again = outputs()
    for number, cell in enumerate([*before, drawn, again]):
        images = [o["data"]["image/png"] for o in cell if "image/png" in o.get("data", {})]
        assert len(images) == 1, number
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(images[0])))
        assert min(picture.shape[:2]) > 200 and picture[..., :3].std() > 0.02
    assert "<table>" in output["data"]["text/html"]
    assert output["data"]["text/plain"].startswith("Panel of 2 series: a, b\n")


def test_a_panel_says_what_is_in_it(panel):
    lines = repr(panel).splitlines()
    assert lines[0] == "Panel of 5 series: AAPL, MSFT, KO, IBM, XOM"
    assert lines[1].endswith("to 2025-12-31, sessions of the New York Stock Exchange")
    assert "inputs beside it: open, high, low, close, volume" in lines[3] and len(lines) < 7
    many = fc.load_panel(
        pd.DataFrame(np.ones((3, 9)), columns=list("abcdefghi")).assign(ds=range(3)), wide=True
    )
    assert repr(many).startswith("Panel of 9 series: a, b, c, d, e, f and 3 more")
    less = panel.only(["KO"], dict.fromkeys(("IBM", "XOM"), Skipped(Kind.OTHER, detail="sold <b>")))
    assert repr(less).endswith("skipped  IBM: sold <b>, and 1 more")
    assert "sold &lt;b&gt;" in less._repr_html_()


def test_a_model_says_what_it_is(model):
    lines = repr(model).splitlines()
    assert lines[0] == "Model LSTM of 5 series: AAPL, MSFT, KO, IBM, XOM"
    assert lines[1].startswith("  forecasts  3 steps of adj_close (sessions of the New York")
    median = model.report["mae_relative_to_naive"].median()
    assert f"  error      {median:.3f} times that of 'unchanged'" in repr(model) and len(lines) < 7
    assert repr(model.networks) == "Networks(LSTM, 5 series, 1 each)"
    assert "<table>" in model._repr_html_()


@pytest.mark.parametrize(
    ("frequency", "words"),
    [
        (Frequency("B", nyse=True), "sessions of the New York Stock Exchange"),
        (Frequency("300s"), "every 5 minutes"),
        (Frequency("3600s"), "hours"),
        (Frequency("months", 3), "quarters"),
        (Frequency("step", 2), "every 2 whole numbers"),
        (Frequency("14D"), "every 14 days"),
        (Frequency("BME"), "months"),
        (Frequency("2QE-OCT"), "every 6 months"),
        (Frequency("4W-SUN"), "every 4 weeks"),
        (Frequency("SME-15"), "half months"),
    ],
)
def test_frequencies_in_words(frequency, words):
    assert in_words(frequency) == words


def test_a_panel_draws_its_rows(panel):
    (line,) = panel.plot("KO", history=50).get_lines()
    close = panel.channel("close")[panel.ids.index("KO")]
    np.testing.assert_array_equal(line.get_ydata(), close[np.isfinite(close)][-50:])
    axes = panel.plot(["KO", "IBM"])
    np.testing.assert_allclose([line.get_ydata()[0] for line in axes.get_lines()], 100)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["KO", "IBM"]
    assert len(panel.plot().get_lines()) == 5 and not pyplot.get_fignums()
    with refuses(UsageError):
        panel.plot("AAP")


def test_a_model_draws_its_errors_or_a_forecast(model, panel):
    axes = model.plot()
    drawn = np.concatenate([line.get_xdata() for line in axes.get_lines()[1:]])
    ratio = model.report["mae_relative_to_naive"].to_numpy()
    np.testing.assert_array_equal(np.sort(drawn), np.sort(ratio))
    median = model.plot(panel, "KO", level=[80]).get_lines()[-1].get_ydata()
    forecast = fc.predict(model, panel.only(["KO"]))
    np.testing.assert_allclose(median[1:], forecast["LSTM"])
    with refuses(UsageError):
        model.plot(unique_id="KO")


def test_an_evaluation_says_what_it_is(tmp_path):
    made = handmade.evaluation(tmp_path, handmade.scores_of(LSTM=[1.0, 2.0, 3.0, 4.0]))
    assert repr(made).startswith(f"Evaluation of {made.summary.series} series\n  models ")
    assert str(tmp_path) in made._repr_html_()
