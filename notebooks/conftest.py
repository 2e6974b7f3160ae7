"""All notebooks but the first run nightly: the pieces that they show are tested elsewhere too."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.stem != "01_quickstart":
            item.add_marker(pytest.mark.slow)
