"""The report in a real browser."""

import dataclasses
import json
import re
import shutil
from typing import Any

import pytest

from forecaster.evaluation import BacktestOptions, Evaluation, Provenance, evaluate_to_folder
from forecaster.report import build_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1100,1400",
)  # fmt: skip


REAL = Provenance(source="files:prices.parquet").stamped()


def with_summary(evaluation: Evaluation, **changes: Any) -> Evaluation:
    return dataclasses.replace(
        evaluation, summary=dataclasses.replace(evaluation.summary, **changes)
    )


@pytest.fixture(scope="module")
def report(panel, config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "evaluation"
    names = ["AAPL", "IBM", "XOM"]
    evaluation = evaluate_to_folder(
        folder, panel.only(names), config, BacktestOptions(30, 2, ("ewma",), seed=1),
        provenance=Provenance(source="simulated", data_sha256="</script><b>"),
    )  # fmt: skip
    return build_report(
        with_summary(evaluation, skipped={"<b>EVIL</b>": "a name & a </script> tag"})
    )


def test_real_prices_without_dates_of_membership_come_with_a_warning(report, tmp_path):
    evaluation = Evaluation.read(report.parent)
    evaluation = with_summary(evaluation, provenance=REAL)
    page = build_report(evaluation, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Survivorship: only companies that are in the data" in page
    evaluation = with_summary(evaluation, membership=True)
    page = build_report(evaluation, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Survivorship" not in page and "point-in-time membership" in page


def test_it_is_one_file_with_everything_in_order(report):
    page = report.read_text(encoding="utf-8")
    assert re.findall("<h2[^>]*>([^<]*)", page) == [
        "Where this comes from", "Verdict", "Errors of every series", "Series by series", "Bands",
        "Where the errors are", "Any series", "Value at risk, one step ahead", "Time and memory",
    ]  # fmt: skip
    assert "simulated, not real" in page and "Survivorship" not in page
    assert "<b>EVIL" not in page and "&lt;b&gt;EVIL" in page
    for outside in ('http-equiv="refresh', 'src="http', 'href="http', "@import", "url(http"):
        assert outside not in page
    assert page.count('role="img" aria-label=') == 4 and page.count("<figcaption>") == 4


@pytest.fixture
def browser(tmp_path):
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium with its driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    from selenium.webdriver.chrome.service import Service

    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


def test_it_works_in_a_browser(report, browser):
    from selenium.webdriver.common.keys import Keys

    def find(selector):
        return browser.find_element("css selector", selector)

    def names():
        return [c.text for c in browser.find_elements("css selector", "#all tbody td:first-child")]

    browser.get(report.as_uri())
    assert sorted(names()) == ["AAPL", "IBM", "XOM"]
    # The search box, by keyboard alone.
    search = find("#search")
    search.clear()
    search.send_keys("ib", Keys.ENTER)
    assert search.get_attribute("value") == "IBM"
    assert find("#fan svg title").get_attribute("textContent") == "IBM"
    assert find("#all tr[aria-selected='true'] td").text == "IBM"
    search.clear()
    search.send_keys("nobody")
    assert find("#found").text == "No such series"
    # Sorting, both ways.
    heading = find("#all thead th:first-child button")
    heading.click()
    assert names() == ["AAPL", "IBM", "XOM"]
    heading.send_keys(Keys.ENTER)
    assert names() == ["XOM", "IBM", "AAPL"]
    assert find("#all thead th").get_attribute("aria-sort") == "descending"
    find("#all tbody tr").click()
    assert find("#fan svg title").get_attribute("textContent") == "XOM"
    find("[data-rank='1']").click()
    assert find("#fan svg polyline").get_attribute("points")

    assert browser.get_log("browser") == []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        sent = message["method"] == "Network.requestWillBeSent"
        if sent and message["params"]["documentURL"] == report.as_uri():
            url = message["params"]["request"]["url"]
            assert url == report.as_uri() or url.startswith("data:"), url
