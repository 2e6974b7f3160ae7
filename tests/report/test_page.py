"""Tests of the report of an evaluation, as a file and in a real browser."""

import dataclasses
import re
from typing import Any

import pytest

from forecaster.errors import Kind, Skipped
from forecaster.evaluation import (
    RETURN_SCORES,
    BacktestOptions,
    Evaluation,
    Provenance,
    evaluate_to_folder,
)
from forecaster.ingest import Groups
from forecaster.report import build_report, html, write_tables
from tests.report import browsing
from tests.report.synthetic import synthetic

REAL = Provenance(source="files:prices.parquet").stamped()
FIGURES = (
    "strips", "ecdf", "forest", "scatter", "coverage", "pit", "widths", "by-horizon", "by-date",
    "by-volatility", "strips-groups", "one figure",
)  # fmt: skip


def with_summary(evaluation: Evaluation, **changes: Any) -> Evaluation:
    return dataclasses.replace(
        evaluation, summary=dataclasses.replace(evaluation.summary, **changes)
    )


@pytest.fixture(scope="module")
def report(panel, config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "evaluation"
    names = ["AAPL", "IBM", "XOM"]
    groups = Groups(folder, {"aapl": "<i>Tech", "ibm": "<i>Tech"})
    evaluation = evaluate_to_folder(
        folder, panel.only(names), config,
        BacktestOptions(30, 2, ("ewma",), seed=1, groups=groups),
    )  # fmt: skip
    evil = Skipped(Kind.OTHER, detail="a name & a </script> tag")
    data = Provenance(source="simulated", data_sha256="</script><b>")
    return build_report(with_summary(evaluation, skipped={"<b>EVIL</b>": evil}, provenance=data))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """Make an evaluation of twelve series, of which PyTorch trained four; one is an outlier."""
    folder = tmp_path_factory.mktemp("sampled")
    made = synthetic(folder, 12, cutoffs=30, horizon=3, models=("LSTM", "Naive", "PyTorch"))
    rest = ~made.scores["unique_id"].isin([f"S{n:03d}" for n in (0, 3, 6, 9)])
    numbers = made.scores.columns[3:]
    made.scores.loc[rest & (made.scores["model"] == "PyTorch"), numbers] = float("nan")
    far = (made.scores["unique_id"] == "S005") & (made.scores["model"] == "LSTM")
    made.scores.loc[far, ["mae", "crps"]] *= 40
    tests = made.tests["unique_id"].isin(made.scores.loc[rest, "unique_id"])
    made.tests.loc[tests & (made.tests["model"] == "PyTorch"), ["value", "difference"]] = None
    return build_report(with_summary(made, torch_series=4))


def test_of_prices_it_says_where_drift_comes_from(report):
    page = report.read_text(encoding="utf-8")
    assert html.typeset("a premium of 5 % a year") in page
    assert html.typeset("CRPS without drift, unchanged = 1") in page
    for heading in ("QLIKE", "QLIKE by ranges", "VaR and ES of 5 %", "log score"):
        assert page.count(f"<th scope='col'>{html.typeset(heading)}</th>") == 1


OLDER = ["crps_driftless", *RETURN_SCORES]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "left_out", "said", "unsaid"),
    [
        ({"provenance": REAL}, [], ["Survivorship: only companies in the data"], []),
        ({"provenance": REAL, "membership": True}, [], ["point-in-time mem"], ["Survivorship"]),
        ({"premium": None}, [], ["is what networks and baselines learned from the past."], []),
        ({"cutoffs": 19}, [], ["there are 19 (--windows)"], []),
        ({"target": "y"}, OLDER, [], ["QLIKE", "drift of prices"]),
    ],
)
def test_another_evaluation_says_what_holds_for_it(
    report, tmp_path, changes, left_out, said, unsaid
):
    made = Evaluation.read(report.parent)
    if "premium" in changes:
        changes = {"config": dataclasses.replace(made.summary.config, premium=None)}
    made = dataclasses.replace(made, scores=made.scores.drop(columns=left_out))
    page = build_report(with_summary(made, **changes), tmp_path / "r.html").read_text("utf-8")
    assert all(text in page for text in said) and not any(text in page for text in unsaid)


def test_it_is_one_file_with_everything_in_order(report):
    page = report.read_text(encoding="utf-8")
    assert browsing.headings_of(report) == [
        "Verdict", "Errors of every series", "Against another model", "Bands",
        "When and where the errors are", "Groups", "Every series", "One series",
        "Value at risk and coverage", "What to keep in mind", "Where this comes from",
    ]  # fmt: skip
    assert "simulated, not real" in page and "Survivorship" not in page
    assert page.index("simulated, not real") < page.index("class='cards'") < page.index("<nav")
    for word in ("EVIL", "Tech"):
        assert f"<b>{word}" not in page and f"<i>{word}" not in page
    assert "&lt;b&gt;EVIL" in page and "Without a group: XOM" in page
    assert len(re.findall("<ol class='verdict'>.*?</ol>", page)[0].split("<li>")) == 1 + 5
    drawn = page.count("<figcaption><h3>")
    assert drawn == 11 and page.count("</h3><p>") == drawn  # each has a sentence on how to read it


def test_an_evaluation_without_groups_has_a_report_too(report, tmp_path):
    plain = with_summary(Evaluation.read(report.parent), groups={})
    assert "Groups" not in browsing.headings_of(build_report(plain, tmp_path / "plain.html"))
    assert [path.name for path in write_tables(plain, tmp_path)] == [
        "comparison.csv", "coverage.csv",
    ]  # fmt: skip


@pytest.mark.parametrize("screen", browsing.SCREENS)
def test_every_figure_is_drawn_and_can_be_read_by_all(report, browser, screen):
    browsing.check_page(browser, report, FIGURES, *screen)


def texts(browser, selector: str) -> list[str]:
    return [cell.text for cell in browser.find_elements("css selector", selector)]


def choose(find, place: str, number: int, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(find(f"#{place} label:nth-child({number}) select")).select_by_value(value)


def test_a_series_is_found_by_keyboard_alone_and_opened(report, browser, find):
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    browsing.open_page(browser, report)
    find("#table input[type=search]").send_keys("ib", Keys.ENTER)
    assert find("#one h3").text == "IBM" and "<i>Tech" in find("#one .note").text
    assert find("#table tr.current th").text == "IBM"
    assert browser.switch_to.active_element.get_attribute("id") == "one"
    assert len(texts(browser, "#one table tbody tr")) == 8  # the worst days
    label = find("#one [role=img]").get_attribute("aria-label")
    assert label.startswith("IBM: values from ")
    # A figure's numbers are also a table.
    find("#one details summary").click()
    wait = WebDriverWait(browser, 5)
    wait.until(lambda _: len(texts(browser, "#one details tbody tr")) > 30)


def test_what_is_chosen_holds_for_all_figures_and_the_table(report, browser, find):
    browsing.open_page(browser, report)
    data = browsing.data_of(report)
    choose(find, "choices", 1, "mae")
    choose(find, "choices", 2, "2")
    choose(find, "choices", 3, "volatility")
    assert find("#strips .below").text == (
        "Absolute error, in volatilities of the series, 2 steps ahead"
    )
    expected = data["measured"]["volatility"]["mae"]["2"]["LSTM"]
    names = texts(browser, "#table tbody th")
    shown = dict(zip(names, texts(browser, "#table tbody td:nth-child(3)"), strict=True))
    assert shown == {n: f"{v:.3f}" for n, v in zip(data["ids"], expected, strict=True)}
    choose(find, "rivals", 1, "EWMA")
    assert "LSTM is better than EWMA on" in find("#pairs-note").text
    assert "EWMA: Absolute error" in find("#scatter .below").text
    assert "EWMA" in find("#pit .legend").text


def test_where_pytorch_trained_a_sample_it_says_so_and_leaves_blanks(sampled, browser, find):
    browsing.open_page(browser, sampled)
    assert "PyTorch trained 4 of the 12 series" in find("#every .note").text
    find("#table thead th:first-child button").click()
    cells = texts(browser, "#table tbody td:nth-child(3)")
    assert [bool(text) for text in cells] == [n % 3 == 0 for n in range(12)]
    assert " of 4 series" in find("#pairs-note").text
    assert "PyTorch" not in find("#by-date .legend").text
    assert "PyTorch" in find("#ecdf .legend").text


def test_what_lies_beyond_the_edges_is_named_and_can_be_shown(sampled, browser, find):
    browsing.open_page(browser, sampled)
    note = find("#errors-note")
    assert note.text.startswith("Beyond the edges: S005 (LSTM, ")
    note.find_element("css selector", "button").click()
    assert "Beyond" not in find("#errors-note").text
