"""The home folder, and the names of everything that is kept in it.

prices/<source>/            the price store of a source, see forecaster.ingest
models/<time>-<model>/      saved models, a run each
evaluations/<time>/         evaluations without a folder of their own
cache/                      compiled programs, and what slow baselines have computed
unfinished/<time>-<model>/  fits that are under way, or were interrupted
"""

import dataclasses
import hashlib
import re
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from forecaster import atomic
from forecaster.errors import ModelError, UsageError
from forecaster.paths import as_bytes

_RUN_FILE, _EVALUATION_FILE = "model.json", "summary.json"  # what makes such a folder complete
_REQUEST_FILE = "request.json"
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

    def new_unfinished(self, model: str) -> Path:
        """The folder for a fit of a kind of model that begins; names sort by time."""
        return self.unfinished / f"{_now()}-{model}"

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
        """The folders of all price stores that have a manifest, by name."""
        return sorted(path.parent for path in self.prices.glob("*/manifest.json"))

    def new_run(self, model: str) -> Path:
        """The folder for a new run of a kind of model; names sort by time."""
        return self.models / f"{_now()}-{model}"

    def runs(self) -> list[Path]:
        """The folders of all complete runs, the oldest first."""
        return _complete(self.models, _RUN_FILE)

    def latest_run(self) -> Path:
        """The folder of the latest run. Raises ModelError when there is none."""
        if runs := self.runs():
            return runs[-1]
        raise ModelError(f"no model under {self} yet; run `forecaster fit` first")

    def new_evaluation(self) -> Path:
        """The folder for a new evaluation; names sort by time."""
        return self.evaluations / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")

    def latest_evaluation(self) -> Path:
        """The folder of the latest evaluation. Raises UsageError when there is none."""
        if evaluations := _complete(self.evaluations, _EVALUATION_FILE):
            return evaluations[-1]
        raise UsageError(
            f"no evaluation in {self.evaluations}; run `forecaster evaluate` first, or name the "
            "folder of one"
        )


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
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")[:-3]


def _complete(folder: Path, file: str) -> list[Path]:
    """The folders in it that have the file, and are not being written, sorted by name."""
    folders = (path.parent for path in folder.glob(f"*/{file}"))
    return sorted(path for path in folders if not path.name.startswith(atomic.PREFIX))
