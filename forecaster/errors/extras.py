"""Optional libraries: whether one is installed, and the command that installs it."""

import importlib.util

from forecaster.errors.exceptions import UsageError

DISTRIBUTION = "forecaster-swarm"
"""This project's name on the Python Package Index, where ``forecaster`` is another project."""


def has(library: str) -> bool:
    """Return whether a library is installed."""
    return importlib.util.find_spec(library) is not None


def require(library: str, extra: str, what: str) -> None:
    """Raise UsageError, with the command that installs it, unless a library is installed.

    - ``library``: the name of its module
    - ``extra``: the extra of this distribution that installs the library
    - ``what``: what needs the library, as named in the message
    """
    if not has(library):
        raise UsageError(f"{what} needs {library}, which is not installed: {pip_command(extra)}")


def pip_command(extra: str) -> str:
    """Return the commands that install an extra, from the package index and in a clone."""
    return f'`pip install "{DISTRIBUTION}[{extra}]"` (in a clone: `pip install -e ".[{extra}]"`)'
