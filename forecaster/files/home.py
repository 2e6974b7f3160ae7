"""Name the folder or file of everything that is kept in the home folder.

prices/<source>/            the price store of a source, see forecaster.ingest
models/<time>-<model>/      a run: a saved model; <time>.<name> if the user named it
evaluations/<time>/         an evaluation for which the user named no folder
cache/                      compiled programs
unfinished/<time>-<model>/  a fit that is running or was interrupted; named as its run will be
record/<time>-<hash>        a forecast that was made, see forecaster.record
daily/<name>.json           the state of the last daily run, see forecaster.daily
downloads/<source>/         copies of the remote files of a source, see forecaster.ingest
"""

import contextlib
import hashlib
import os
import re
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from forecaster.errors import ModelError, UsageError, listed, printable, wrong_argument
from forecaster.files import atomic

# A folder that holds this file is complete.
_RUN_FILE, _EVALUATION_FILE = "model.json", "summary.json"
_REQUEST_FILE = "request.json"
INDEX, OLDER_INDEX = "manifest.json", "index.sqlite"
"""Names of a price store's index, in this version and in versions 3 and 4."""
_TIME = "%Y%m%d-%H%M%S-%f"  # format of times in names, which lack the last three digits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_STAMP = re.compile(r"(?P<time>\d{8}-\d{6}-\d{3})([-.](?P<rest>.+))?", re.DOTALL)
# The time at the start of a run's name, or of an evaluation's.
_TIMED = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[-T](\d\d)-?(\d\d)-?(\d\d)(?!\d)")
_RESERVED = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$", re.IGNORECASE)


class Home:
    """The folder for prices, models and evaluations. Its methods return paths and create none.

    - ``prices``, ``models``, ``unfinished``: of all price stores, runs and unfinished fits
    - ``evaluations``: of evaluations for which the user named no folder
    - ``cache``: of what can be made again, which may be deleted at any time
    - ``programs``: of compiled programs, which one user alone may write
    - ``record``, ``daily``: of the forecasts that were made, and of the state of daily runs
    - ``downloads``: of copies of remote files, which may be deleted at any time
    - ``folders``: all folders of the home
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.prices = folder / "prices"
        self.models = folder / "models"
        self.evaluations = folder / "evaluations"
        self.cache = folder / "cache"
        self.programs = self.cache / "programs"
        self.unfinished = folder / "unfinished"
        self.record = folder / "record"
        self.daily = folder / "daily"
        self.downloads = folder / "downloads"
        self.folders = (
            self.prices, self.models, self.evaluations, self.cache, self.unfinished, self.record,
            self.daily, self.downloads,
        )  # fmt: skip

    def __str__(self) -> str:
        return str(self.folder)

    def new_recorded(self, digest: str, now: datetime) -> Path:
        """Return the file for a forecast made now; ``digest``: its hash. Names sort by time."""
        return self.record / f"{now.strftime(_TIME)[:-3]}-{digest}.parquet"

    def recorded(self) -> list[Path]:
        """Return the files of all forecasts that were made, the earliest first."""
        files = self.record.glob("*.parquet")
        return sorted(path for path in files if not path.name.startswith(atomic.PREFIX))

    def new_unfinished(self, model: str, name: str | None = None) -> Path:
        """Return the folder for a fit that begins, named as its run will be. Names sort by time."""
        return self.unfinished / _stamped(_now(), model, name)

    def unfinished_fits(self) -> list[Path]:
        """Return the folders of all unfinished fits, the oldest first."""
        return _complete(self.unfinished, _REQUEST_FILE)

    def store(self, source: str) -> Path:
        """Return the folder of a source's price store."""
        return self.prices / file_name(source)

    def stores(self) -> list[Path]:
        """Return the folders of all price stores that have an index, by name."""
        indexes = (path for name in (INDEX, OLDER_INDEX) for path in self.prices.glob(f"*/{name}"))
        return sorted({path.parent for path in indexes})

    def new_run(self, model: str, name: str | None = None) -> Path:
        """Return the folder for a new run, named by its kind of model or by the user."""
        return self.models / _stamped(_now(), model, name)

    def runs(self) -> list[Path]:
        """Return the folders of all complete runs, the oldest first."""
        return _complete(self.models, _RUN_FILE)

    def holds(self, run: Path) -> bool:
        """Return whether a run's folder is in the home itself, not a link to a folder elsewhere."""
        return run.resolve().parent == self.models.resolve()

    def latest_run(self) -> Path:
        """Return the folder of the latest run. Raises ModelError when there is none."""
        if runs := self.runs():
            return runs[-1]
        raise ModelError(f"no model under {self} yet; run `forecaster fit` first")

    def find_run(self, name: str) -> Path:
        """Return the folder of a run by its name. Raises UsageError with the names that exist."""
        runs = {run_name(folder).casefold(): folder for folder in self.runs()}
        if (folder := runs.get(name.casefold())) is not None:
            return folder
        there = listed(run_name(folder) for folder in reversed(runs.values()))
        raise UsageError(
            f"no run {name!r} under {self}; "
            + (f"there are {there}" if runs else "there is none; run `forecaster fit` first")
        )

    def check_new_name(self, name: str, *, fits: bool = True) -> None:
        """Raise UsageError unless a new run may have this name.

        The name must be valid, and no run and no unfinished fit may have it. Letter case is
        ignored.

        ``fits``: False: an unfinished fit may have the name; it may be removed before the name is
        used
        """
        if not _NAME.fullmatch(name) or _STAMP.fullmatch(name) or _RESERVED.match(name):
            raise UsageError(
                f"{name!r} cannot name a run; expected at most 60 letters, digits and . _ -, "
                "beginning with a letter or digit but not with a time, e.g. tech-weekly"
            )
        taken = dict.fromkeys(self.unfinished_fits() if fits else [], "an unfinished fit")
        for folder, what in (taken | dict.fromkeys(self.runs(), "a run")).items():
            if run_name(folder).casefold() == name.casefold():
                remove = "runs remove" if what == "a run" else "fit --discard"
                raise UsageError(
                    f"there is {what} {run_name(folder)!r} already ({folder.name}); choose another "
                    f"name, or remove it: `forecaster {remove} {run_name(folder)}`"
                )

    def new_evaluation(self) -> Path:
        """Return the folder for a new evaluation, named by its time to the millisecond."""
        return self.evaluations / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")[:-3]

    def latest_evaluation(self) -> Path:
        """Return the folder of the latest evaluation. Raises UsageError when there is none."""
        if evaluations := _complete(self.evaluations, _EVALUATION_FILE):
            return evaluations[-1]
        raise UsageError(
            f"no evaluation in {self.evaluations}; run `forecaster evaluate` first, or name the "
            "folder of one"
        )


def as_file(path: object) -> Path:
    """Return the file that a caller names. Raises UsageError for anything but a path."""
    if isinstance(path, str | Path) and not Path(path).name:
        raise wrong_argument("path", path, "the path of a file")
    return as_folder(path, "path: expected the path of a file")


def as_folder(folder: object, expected: str = "expected the path of a folder") -> Path:
    """Return a folder that a caller names. Raises UsageError for anything but a path."""
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(folder, str | Path) and b"\0" not in os.fsencode(folder):
            return Path(folder)
    raise UsageError(f"{expected}; got {printable(repr(folder)[:80])}")


def as_home(folder: "Home | str | Path | None" = None) -> Home:
    """Return a home by its folder; None: FORECASTER_HOME, or else the user's data folder."""
    if isinstance(folder, Home):
        return folder
    if folder is not None:
        as_folder(folder)
    if folder := folder or os.environ.get("FORECASTER_HOME"):
        return Home(Path(folder).expanduser())
    import platformdirs

    return Home(Path(platformdirs.user_data_dir("forecaster", appauthor=False)))


def run_name(folder: Path) -> str:
    """Return the name of a run or an unfinished fit: from the user, or else its folder's name."""
    match = _STAMP.fullmatch(folder.name)
    named = match and match["rest"] and folder.name[match.end("time")] == "."
    return match["rest"] if match and named else folder.name


def run_time(folder: Path) -> datetime | None:
    """Return when a run or an evaluation was saved, in UTC; None if its folder has no time."""
    if (match := _TIMED.match(folder.name)) is None:
        return None
    try:
        return datetime.strptime("".join(match.groups()), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # digits that are not a time
        return None


def renamed(folder: Path, name: str) -> Path:
    """Return the folder of a run under a new name; its place in the order of runs stays."""
    match = _STAMP.fullmatch(folder.name)
    return folder.with_name(_stamped(match["time"] if match else _now(), "", name))


def _stamped(time: str, model: str, name: str | None) -> str:
    return f"{time}-{model}" if name is None else f"{time}.{name}"


def as_text(path: str | Path) -> str:
    """Return a path as text, read as UTF-8 in every locale.

    Bytes that are not UTF-8 become lone surrogates, as in Python; :func:`as_bytes` reverses it.
    """
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes of a path from its :func:`as_text`."""
    return text.encode("utf-8", "surrogateescape")


def from_text(text: str) -> Path:
    """Return the path that a user typed in this locale, or that :func:`as_text` gave in any."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return Path(os.fsdecode(as_bytes(text)))
    return Path(text)


def readable(name: str | Path) -> str:
    r"""Return a name as valid text, in which a byte that is not UTF-8 is written as ``\xf6``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def file_name(name: str) -> str:
    """Return a file name for the name of a series or source.

    The file name has no separators, is not reserved and not too long. Different names get different
    files, even if the file system ignores case.
    """
    quoted = urllib.parse.quote(name, safe="^= +@", errors="surrogateescape")
    if quoted.startswith(".") or _RESERVED.match(quoted):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    digest = hashlib.sha256(as_bytes(name)).hexdigest()
    if name != name.upper():
        quoted = f"{quoted}~{digest[:8]}"
    if len(quoted) > 120:
        quoted = f"{quoted[:80]}~{digest[:24]}"
    return quoted


def _now() -> str:
    """Return the present time to the millisecond, in the form that names contain."""
    return datetime.now(UTC).strftime(_TIME)[:-3]


def _complete(folder: Path, file: str) -> list[Path]:
    """Return the subfolders that hold the file, and so are complete, sorted by time."""
    folders = (path.parent for path in folder.glob(f"*/{file}"))
    return sorted(path for path in folders if not path.name.startswith(atomic.PREFIX))
