"""Check pages in a browser: on a desktop and a phone screen, light and dark."""

import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
SCREENS = [(width, scheme) for width in (1440, 390) for scheme in ("light", "dark")]


def started(profile: Path) -> Iterator[Any]:
    """Start a browser, or skip the test if there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium with its driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    from selenium.webdriver.chrome.service import Service

    driver = webdriver.Chrome(options, service=Service(DRIVER))
    yield driver
    driver.quit()


def open_page(browser: Any, page: Path, width: int = 1440, scheme: str = "light") -> None:
    """Open a file on a screen of some width, in light or dark."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(page.as_uri())


def data_of(page: Path) -> dict[str, Any]:
    """Return the data that the script of a page draws."""
    (text,) = re.findall('id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(text)


def headings_of(page: Path) -> list[str]:
    """Return the headings of a page's sections, which loads nothing from elsewhere."""
    text = page.read_text(encoding="utf-8")
    for outside in ('http-equiv="refresh', 'src="http', 'href="http', "@import", "url(http"):
        assert outside not in text
    return re.findall("<h2[^>]*>([^<]*)", text)


def found(browser: Any, selector: str) -> list[Any]:
    """Return the elements of a selector once there are any: events of a page take a moment."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 10).until(
        lambda _: browser.find_elements("css selector", selector)
    )


def check_quiet(browser: Any, page: Path) -> None:
    """Check that the console is empty, and that only the page itself was requested."""
    assert browser.get_log("browser") == []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        sent = message["method"] == "Network.requestWillBeSent"
        if sent and message["params"]["documentURL"].split("#")[0] == page.as_uri():
            url = message["params"]["request"]["url"]
            assert url.split("#")[0] == page.as_uri() or url.startswith("data:"), url


def check_fits(browser: Any) -> None:
    """Check that nothing is wider than the screen."""
    wide = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1], wide


def check_accessible(browser: Any) -> None:
    """Check that axe finds no violation of WCAG 2 A or AA."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None or found.origin is None:
        pytest.skip("axe-core-python is not installed")
    browser.execute_script((Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    violations = browser.execute_async_script(
        "const done = arguments[0];"
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa']}).then((result) => done("
        "result.violations.map((v) => [v.id, v.nodes[0].html, v.nodes[0].failureSummary])));"
    )
    assert violations == []


def check_drawn(browser: Any, box: str) -> None:
    """Check that a figure has more colours than its background, and a text for screen readers."""
    drawn = browser.execute_script(
        "const canvas = document.querySelector(arguments[0] + ' canvas');"
        "if (!canvas) return 0;"
        "const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "let count = 0; for (let n = 3; n < all.length; n += 4) count += all[n] > 0; return count;",
        box,
    )
    assert drawn > 500, f"{box}: {drawn} pixels"
    label = browser.find_element("css selector", f"{box} [role=img]").get_attribute("aria-label")
    assert label and len(label) > 10


def check_page(browser: Any, page: Path, figures: tuple[str, ...], width: int, scheme: str) -> None:
    """Check a page at one width and scheme: figures drawn, nothing too wide, accessible, quiet."""
    open_page(browser, page, width, scheme)
    for name in figures:
        check_drawn(browser, f"#{name}")
    check_fits(browser)
    check_accessible(browser)
    check_quiet(browser, page)
