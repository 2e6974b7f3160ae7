"""Libraries that only some uses need: whether they are there, and what installs them."""

import importlib.util

from forecaster.errors import UsageError


def has(library: str) -> bool:
    """Whether a library is installed."""
    return importlib.util.find_spec(library) is not None


def require(library: str, extra: str, what: str) -> None:
    """Raise UsageError, with the pip command, where a library is not installed.

    - ``library``: its module
    - ``extra``: of this program, that brings it
    - ``what``: what needs it
    """
    if not has(library):
        raise UsageError(f"{what} needs {library}, which is not installed; {pip_command(extra)}")


def pip_command(extra: str) -> str:
    """What installs the libraries of an extra, such as ``pip install 'ray>=2.60'``.

    It names them, not this program, which is not on the Python Package Index: there, a project of
    somebody else has its name.
    """
    import importlib.metadata  # here, as it takes longer than all of `--help`'s own modules

    try:
        declared = importlib.metadata.requires("forecaster") or []
    except importlib.metadata.PackageNotFoundError:  # run from its folder, without being installed
        declared = []
    marked = (requirement.partition(";") for requirement in declared)
    needed = [
        name.strip()
        for name, _, marker in marked
        if marker.strip().replace("'", '"') == f'extra == "{extra}"'
    ]
    if not needed:
        return f"pip install '.[{extra}]' in a clone of its repository"
    return "pip install " + " ".join(f"'{name}'" for name in sorted(needed))
