"""A browser that is started once."""

import pytest

from tests.report.browsing import started


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    yield from started(tmp_path_factory.mktemp("browser") / "profile")
