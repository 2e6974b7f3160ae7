"""Tests of the parts that all pages share: frame, figures, tables and data."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import UsageError
from forecaster.report import html
from forecaster.report.html import pack
from tests.messages import refuses
from tests.report import browsing

FIGURES = ("lines", "steps", "points", "intervals", "bars")
DATA = {
    "x": [0, 1, 2, 3, 4, 5],
    "y": [3, -1, 2, 5, 4, 8],
    "ids": ["A", "BRK-B", "C", "D", "E", "F"],
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        own, shared = Path(__file__).with_name("demo.js").read_text(), html.resource
        patch.setattr(html, "resource", lambda name: own if name == "demo.js" else shared(name))
        figures = "".join(html.figure(name, name.title(), "How it is read.") for name in FIGURES)
        frame = pd.DataFrame({"model": ["<b>", "B"], "share": [0.25, np.nan]})
        sections = [
            html.Section("figures", "Figures", f"<div class='panels'>{figures}</div>"),
            html.Section(
                "tables", "Tables", f"<div id='table'></div>{html.table(frame, 'Shares')}"
            ),
        ]
        path = tmp_path_factory.mktemp("demo") / "demo.html"
        return html.write_page(
            path, title="A & B", heading="A & B", lead="<i>", notices=["Simulated."],
            sections=sections, cards=[html.Card("0.9", "score")], data=DATA, script="demo.js",
        )  # fmt: skip


def test_what_comes_from_outside_is_text(demo):
    page = demo.read_text(encoding="utf-8")
    assert "<title>A &amp; B</title>" in page and "&lt;i&gt;" in page
    assert "<td class='text'>&lt;b&gt;</td><td>25.0\u202f%</td>" in page
    assert "<td>\u2013</td>" in page
    assert html.embedded({"a": "</script>"}) == '{"a":"\\u003c/script>"}'
    with pytest.raises(ValueError, match="JSON"):
        html.embedded([float("nan")])


def test_numbers_stay_with_their_units_and_names_as_they_are():
    assert html.typeset("80 % and 5%, <x> = 1") == "80\u202f% and 5\u202f%, &lt;x&gt; =\xa01"
    frame = pd.DataFrame({"file = id": ["50%/a = 5 %.csv"], "change": [-0.25], "held": [0.5]})
    table = html.table(frame, "Changes", {"change": ".2f"})
    assert "<td class='text'>50%/a = 5 %.csv</td>" in table
    assert "<td>\u22120.25</td><td>50.0\u202f%</td>" in table
    assert "<th scope='col' class='text'>file =\xa0id</th>" in table


def test_without_the_library_of_figures_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(html, "UPLOT", "nowhere.js")
    with refuses(UsageError):
        html.check_uplot()


def test_packed_numbers_are_read_in_the_browser(demo, browser):
    values = np.array([1.0, np.nan, 2.5, -3.0, 9.0, np.inf])
    browsing.open_page(browser, demo)
    text = json.dumps([pack(values, -3, 9, 2), pack(values, -3, 9, 3)])
    two, three = browser.execute_script(
        f"return {text}.map((text, n) => charts.unpack(text, -3, 9, n + 2))"
    )
    assert [v is None for v in two] == [False, True, False, False, False, True]
    known = np.isfinite(values)
    np.testing.assert_allclose(np.array(two, float)[known], values[known], atol=12 / 64**2)
    np.testing.assert_allclose(np.array(three, float)[known], values[known], atol=12 / 64**3)


def names(browser) -> list[str]:
    rows = browser.find_elements("css selector", "#table tbody th")
    return [row.text for row in rows]


def test_tables_sort_search_and_choose_columns(demo, browser, find):
    from selenium.webdriver.common.keys import Keys

    browsing.open_page(browser, demo)
    assert names(browser) == ["BRK-B", "A", "E", "D", "F", "C"]  # a row without a number comes last
    heading = find("#table thead th:nth-child(2) button")
    heading.send_keys(Keys.ENTER)
    assert names(browser) == ["F", "D", "E", "A", "BRK-B", "C"]
    assert find("#table thead th:nth-child(2)").get_attribute("aria-sort") == "descending"
    assert "value" in browser.switch_to.active_element.text  # the focus stays
    search = find("#table input[type=search]")
    search.send_keys("brk.b", Keys.ENTER)
    assert names(browser) == ["BRK-B"] and browser.execute_script("return picked") == "BRK-B"
    assert find("#table .found").text == "1 of 6"
    search.clear()
    search.send_keys("a", Keys.BACKSPACE)
    find("#table summary").click()
    find("#table input[value=x]").click()
    assert find("#table thead tr").text.split()[-1] == "rank"
    find("#table tbody tr:nth-child(2) td").click()
    assert browser.execute_script("return picked") == "D"


def test_the_value_axis_follows_what_is_looked_at_closer(demo, browser):
    from selenium.webdriver.common.action_chains import ActionChains

    browsing.open_page(browser, demo)
    before = browser.execute_script("return lines.scale('y')")
    over = browser.find_element("css selector", "#lines .u-over")
    width = over.size["width"]
    drag = ActionChains(browser).move_to_element_with_offset(over, round(-width / 2) + 1, 0)
    drag.click_and_hold().move_by_offset(round(width / 4), 3).release().perform()
    after = browser.execute_script("return lines.scale('y')")
    assert before[0] <= after[0] and after[1] < before[1]  # the highest value is the last
    browser.find_element("css selector", "#lines .reset").click()
    assert browser.execute_script("return lines.scale('y')") == before


def test_a_point_says_whose_it_is_and_opens_it(demo, browser):
    from selenium.webdriver.common.action_chains import ActionChains

    browsing.open_page(browser, demo)
    over = browser.find_element("css selector", "#points .u-over")
    x, y = browser.execute_script(
        "const b = document.querySelector('#points .u-over').getBoundingClientRect();"
        "return [b.width, b.height]"
    )
    room, high = 0.02 * 5, 0.06 * 9  # around x from 0 to 5, y from -1 to 8
    right = (3 + room) / (5 + 2 * room) * x - x / 2
    down = y / 2 - (5 + 1 + high) / (9 + 2 * high) * y
    ActionChains(browser).move_to_element_with_offset(over, round(right), round(down)).perform()
    tip = browser.find_element("css selector", "#points .tip").text
    assert tip.splitlines()[0] == "D" and "5" in tip
    ActionChains(browser).click().perform()
    assert browser.execute_script("return picked") == "D"
