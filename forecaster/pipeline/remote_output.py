"""Write forecasts as an object of a store: S3, Google's or Azure's, by fsspec.

The file is written here and then sent as one object, which the stores show whole or not at all.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from forecaster.errors import ForecasterError, UsageError, WriteError
from forecaster.files import (
    TABLES,
    Output,
    atomic,
    check_output,
    format_of,
    is_database,
    is_url,
)
from forecaster.ingest import WEB, RemoteUrl, read_remote_url

if TYPE_CHECKING:
    from forecaster.pipeline.forecast_table import ForecastTable

_EXPECTED = "expected the name of an object, such as s3://BUCKET/FOLDER/forecasts.csv"
_KINDS = (
    "expected the path of a file, or s3://BUCKET/FILE.csv, gs://BUCKET/FILE.csv or "
    "az://CONTAINER/FILE.csv"
)


@dataclasses.dataclass(frozen=True)
class RemoteOutput(Output):
    """An object of a store that may be written, as returned by :func:`check_forecast_output`.

    ``url``: of the object; ``system``: the fsspec file system; ``key``: the object's path in it
    """

    url: RemoteUrl = dataclasses.field(kw_only=True)
    system: Any = dataclasses.field(kw_only=True, repr=False, compare=False)
    key: str = dataclasses.field(kw_only=True)

    @property
    def shown(self) -> str:
        """Its URL."""
        return self.url.shown

    def write(self, write: Callable[[Path], object]) -> None:
        """Write the object by ``write(path)``, whole or not at all. Raises WriteError."""
        with contextlib.ExitStack() as stack:
            with atomic.as_write_error(Path(tempfile.gettempdir())):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forecaster-"))
                file = Path(folder) / f"output{PurePosixPath(self.key).suffix}"
                write(file)
            with _as_write_error(self.url):
                self.system.put_file(str(file), self.key)


def check_forecast_output(
    name: str,
    *,
    form: str | None = None,
    overwrite: bool = False,
    option: str = "--output",
    formats: bool = False,
) -> "Output | ForecastTable":
    """Check that forecasts can be written to a file, an object of a store or a table; return it.

    Call this before the work begins.

    - ``name``: a path, a URL or ``sql:URL#TABLE``; ``${NAME}`` in the latter two is taken from the
      environment
    - ``form``: the format; by default the format of the ending
    - ``overwrite``: whether the file or object may exist
    - ``option``: the command-line option, for error messages
    - ``formats``: whether the command has the option --format, which messages then propose

    Whether a store would take an object shows when it is written.

    Raises UsageError when the file or object exists, the format is unknown or does not match the
    ending, or a library is missing; WriteError when the store or the database cannot be reached, or
    refuses.
    """
    if is_database(name):
        from forecaster.pipeline.forecast_table import ForecastTable

        table = ForecastTable(name, option)
        table.check()
        return table
    if not is_url(name):
        return check_output(
            Path(name), form=form, overwrite=overwrite, option=option, formats=formats
        )
    url = read_remote_url(name, option, _KINDS)
    if url.kind in WEB:
        raise UsageError(f"{option} {url.shown}: web servers are only read from; {_EXPECTED}")
    try:
        form = format_of(url.url, TABLES, form, option, formats=formats)
    except UsageError as error:
        raise UsageError(url.hidden(str(error))) from None
    if any(sign in url.url for sign in "*["):
        raise UsageError(f"{option} {url.shown}: is a pattern; {_EXPECTED}")
    system, path = url.open(f"{option} {url.shown}")
    if "/" not in path.lstrip("/"):
        raise UsageError(f"{option} {url.shown}: names no object in a bucket; {_EXPECTED}")
    output = RemoteOutput(Path(path), form, url=url, system=system, key=path)
    if overwrite:  # who may only write is not allowed to ask whether it exists
        return output
    with _as_write_error(url), contextlib.suppress(FileNotFoundError):
        system.info(path)
        raise UsageError(f"{option} {url.shown} exists; choose another name, or add --overwrite")
    return output


@contextlib.contextmanager
def _as_write_error(url: RemoteUrl) -> Iterator[None]:
    """Raise WriteError, in one line and without secrets, for whatever fails in the block."""
    try:
        yield
    except ForecasterError:
        raise
    except Exception as error:  # each kind of store has errors of its own
        raise WriteError(f"{url.shown}: cannot be written: {url.reason(error)}") from None
