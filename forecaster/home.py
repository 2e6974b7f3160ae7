"""The home folder, and the names of everything that is kept in it.

prices/<source>/            the price store of a source, see forecaster.ingest
models/<time>-<model>/      saved models, a run each; <time>.<name> where it was given a name
evaluations/<time>/         evaluations without a folder of their own
cache/                      compiled programs, and what slow baselines have computed
unfinished/<time>-<model>/  fits that are under way, or were interrupted; named as their runs
record/<time>-<hash>        the forecasts that were made, a file each, see forecaster.record
"""

import dataclasses
import hashlib
import re
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from forecaster.errors import ModelError, UsageError, listed
from forecaster.files import as_bytes, atomic

_RUN_FILE, _EVALUATION_FILE = "model.json", "summary.json"  # what makes such a folder complete
_REQUEST_FILE = "request.json"
INDEX, MANIFEST = "index.sqlite", "manifest.json"
"""Names of a price store's index, in this version and in older ones."""
_TIME = "%Y%m%d-%H%M%S-%f"  # of which the last three digits are left out
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_STAMP = re.compile(r"(?P<time>\d{8}-\d{6}-\d{3})([-.](?P<rest>.+))?", re.DOTALL)
_RESERVED = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Home:
    """Where prices, models and evaluations are kept. Nothing is created by naming it."""

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def prices(self) -> Path:
        """The folder of all price stores."""
        return self.folder / "prices"

    @property
    def models(self) -> Path:
        """The folder of all runs."""
        return self.folder / "models"

    @property
    def evaluations(self) -> Path:
        """The folder of all evaluations that were given none."""
        return self.folder / "evaluations"

    @property
    def cache(self) -> Path:
        """The folder of compiled programs; it may be deleted at any time."""
        return self.folder / "cache"

    @property
    def baselines_cache(self) -> Path:
        """The folder where slow baselines keep what they have computed."""
        return self.cache / "baselines"

    @property
    def unfinished(self) -> Path:
        """The folder of all fits that are under way, or were interrupted."""
        return self.folder / "unfinished"

    @property
    def record(self) -> Path:
        """The folder of all forecasts that were made."""
        return self.folder / "record"

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders that are kept here."""
        known = self.prices, self.models, self.evaluations
        return *known, self.cache, self.unfinished, self.record

    def new_recorded(self, digest: str, now: datetime) -> Path:
        """The file for a forecast that is made now, with a hash of it; names sort by time."""
        return self.record / f"{now.strftime(_TIME)[:-3]}-{digest}.parquet"

    def recorded(self) -> list[Path]:
        """The files of all forecasts that were made, the earliest first."""
        files = self.record.glob("*.parquet")
        return sorted(path for path in files if not path.name.startswith(atomic.PREFIX))

    def new_unfinished(self, model: str, name: str | None = None) -> Path:
        """The folder for a fit that begins, named as its run will be; names sort by time."""
        return self.unfinished / _stamped(_now(), model, name)

    def unfinished_fits(self) -> list[Path]:
        """The folders of all unfinished fits, the oldest first.

        Version 0.2 kept only one, in ``unfinished`` itself.
        """
        below = _complete(self.unfinished, _REQUEST_FILE)
        return [*([self.unfinished] if (self.unfinished / _REQUEST_FILE).exists() else []), *below]

    def store(self, source: str) -> Path:
        """The folder of one source's price store."""
        return self.prices / file_name(source)

    def stores(self) -> list[Path]:
        """Return the folders of all price stores that have an index, by name."""
        indexes = (path for name in (INDEX, MANIFEST) for path in self.prices.glob(f"*/{name}"))
        return sorted({path.parent for path in indexes})

    def new_run(self, model: str, name: str | None = None) -> Path:
        """The folder for a new run of a kind of model, or of a name; folders sort by time."""
        return self.models / _stamped(_now(), model, name)

    def runs(self) -> list[Path]:
        """The folders of all complete runs, the oldest first."""
        return _complete(self.models, _RUN_FILE)

    def latest_run(self) -> Path:
        """The folder of the latest run. Raises ModelError when there is none."""
        if runs := self.runs():
            return runs[-1]
        raise ModelError(f"no model under {self} yet; run `forecaster fit` first")

    def find_run(self, name: str) -> Path:
        """The folder of the run of this name. Raises UsageError with the names there are."""
        runs = {run_name(folder).casefold(): folder for folder in self.runs()}
        if (folder := runs.get(name.casefold())) is not None:
            return folder
        there = listed(run_name(folder) for folder in reversed(runs.values()))
        raise UsageError(
            f"no run {name!r} under {self}; "
            + (f"there are {there}" if runs else "there is none; run `forecaster fit` first")
        )

    def check_new_name(self, name: str) -> None:
        """Raise UsageError unless a new run may have this name: one that can be, and is free.

        Taken is also the name of a fit that has not ended. Letter case does not count.
        """
        if not _NAME.fullmatch(name) or _STAMP.fullmatch(name) or _RESERVED.match(name):
            raise UsageError(
                f"{name!r} cannot name a run; expected letters, digits and . _ -, of which the "
                "first is a letter or digit, 60 at most, and no time in front, e.g. tech-weekly"
            )
        for folder, what in (
            *((run, "run") for run in self.runs()),
            *((fit, "unfinished fit") for fit in self.unfinished_fits()),
        ):
            if run_name(folder).casefold() == name.casefold():
                raise UsageError(
                    f"there is {'a' if what == 'run' else 'an'} {what} {name!r} already "
                    f"({folder.name}); choose another name"
                    + (", or `forecaster runs remove` or `rename` it" if what == "run" else "")
                )

    def new_evaluation(self) -> Path:
        """The folder for a new evaluation; names sort by time, and differ by the millisecond."""
        name = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")[:-3]
        return self.evaluations / name

    def latest_evaluation(self) -> Path:
        """The folder of the latest evaluation. Raises UsageError when there is none."""
        if evaluations := _complete(self.evaluations, _EVALUATION_FILE):
            return evaluations[-1]
        raise UsageError(
            f"no evaluation in {self.evaluations}; run `forecaster evaluate` first, or name the "
            "folder of one"
        )


def run_name(folder: Path) -> str:
    """What a run, or a fit that has not ended, is called: its name, or else its folder's."""
    match = _STAMP.fullmatch(folder.name)
    named = match and match["rest"] and folder.name[match.end("time")] == "."
    return match["rest"] if match and named else folder.name


def run_time(folder: Path) -> datetime | None:
    """When a run was saved, in UTC; None where its folder was named by hand."""
    match = _STAMP.fullmatch(folder.name)
    if match is None:
        return None
    try:
        return datetime.strptime(f"{match['time']}000", _TIME).replace(tzinfo=UTC)
    except ValueError:  # digits that are no time
        return None


def renamed(folder: Path, name: str) -> Path:
    """The folder of a run under another name, at the same place among the others."""
    match = _STAMP.fullmatch(folder.name)
    return folder.with_name(_stamped(match["time"] if match else _now(), "", name))


def _stamped(time: str, model: str, name: str | None) -> str:
    return f"{time}-{model}" if name is None else f"{time}.{name}"


def file_name(name: str) -> str:
    """A file name for any name of a series or source.

    No separators, no reserved names, not too long; different names get different files even where
    the file system ignores case.
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
    """The time as the beginning of a name, to the millisecond."""
    return datetime.now(UTC).strftime(_TIME)[:-3]


def _complete(folder: Path, file: str) -> list[Path]:
    """The folders in it that have the file, and are not being written, sorted by name."""
    folders = (path.parent for path in folder.glob(f"*/{file}"))
    return sorted(path for path in folders if not path.name.startswith(atomic.PREFIX))
