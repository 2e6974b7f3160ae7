"""A browser that is started once."""

import pytest

from tests.report.browsing import started


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    yield from started(tmp_path_factory.mktemp("browser") / "profile")


@pytest.fixture
def find(browser):
    """Return a function that finds the first element of a selector on the page that is open."""
    return lambda selector: browser.find_element("css selector", selector)
