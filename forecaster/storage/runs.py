"""List, rename and remove the runs of a home, and choose the one to forecast with."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from forecaster.errors import DamagedModel, ModelError, UsageError, listed
from forecaster.files import Home, atomic, from_text, renamed, run_name
from forecaster.forecasting import resolve_names
from forecaster.storage.run import Run, store_of

SIMULATED = "simulated"
_FILE = "model.json"


def runs_of(home: Home) -> tuple[list[Run], dict[Path, ModelError]]:
    """Return all runs, see :meth:`Home.runs`, and by folder the errors of those not to be read."""
    runs: list[Run] = []
    damaged: dict[Path, ModelError] = {}
    for folder in home.runs():
        try:
            runs.append(Run.read(folder))
        except ModelError as error:
            damaged[folder] = error
    return runs, damaged


def remove_run(home: Home, name: str) -> Path:
    """Remove a run, whole or not at all; of a symbolic link only the link, not what it points to.

    Raises UsageError when there is no run of this name.
    """
    folder = home.find_run(name)
    (atomic.remove_file if folder.is_symlink() else atomic.remove_folder)(folder)
    return folder


def rename_run(home: Home, name: str, new: str) -> Path:
    """Rename a run without changing the order of runs; return its new folder.

    Raises UsageError when there is no such run, or the new name is taken or cannot be one.
    """
    folder = home.find_run(name)
    home.check_new_name(new)
    with atomic.as_write_error(folder):
        return folder.rename(renamed(folder, new))


def choose_run(
    home: Home,
    run: str | Path | None = None,
    tickers: Sequence[str] | None = None,
    on_notice: Callable[[str], None] | None = None,
    *,
    source: str | None = None,
) -> Run:
    """Return a run by its name, or else the run that fits some tickers best.

    Runs of real prices come before simulated ones; then those that know more of the tickers; then
    those of the source that was fitted last; then the latest.

    - ``run``: the name of a run of the home, or any folder with a model
    - ``tickers``: None: any
    - ``on_notice(message)``: called where several could be meant, with the chosen run and why newer
      ones were not chosen
    - ``source``: the source of the run; None: any

    Raises ModelError when there is none, none knows any of the tickers, or one that is later than
    the chosen one cannot be read; UsageError when there is none of this name.
    """
    if run is not None:
        return _named(home, run)
    say = on_notice or (lambda message: None)
    home.latest_run()  # raises if there is none
    every, damaged = runs_of(home)
    runs = [run for run in reversed(every) if source in (None, run.source)]
    if not runs:
        raise _none_sound(source, damaged)
    known = _known(home, runs, tickers, any_will_do=source is not None)
    sources = [run.source for run in runs]
    chosen = min(  # among equals the first, the latest run
        runs,
        key=lambda run: (
            run.source == SIMULATED or not known[run.folder],
            -known[run.folder],
            sources.index(run.source),
        ),
    )
    for folder, why in reversed(damaged.items()):
        if folder > chosen.folder and _source_of(folder) in (None, chosen.source):
            raise DamagedModel(f"{why}; {in_place_of(folder, [chosen])}")
    newer = [run.name for run in runs[: runs.index(chosen)]]
    if source is None and (newer or sum(map(bool, known.values())) > 1):  # others could be meant
        say(f"Run: {chosen}")
        if newer:
            why = "of simulated data or another source, or without some of the tickers"
            say(f"  newer, but not taken ({why}): {listed(newer)}; --run NAME takes one")
    return chosen


def in_place_of(damaged: Path, runs: Sequence[Run]) -> str:
    """Return what to do about a damaged run, as the end of a message.

    ``runs``: sound ones, the latest last
    """
    remove = f"`forecaster runs remove {run_name(damaged)}` removes it"
    others = [run.name for run in runs if run.folder != damaged]
    return f"--run {others[-1]} takes another, {remove}" if others else remove


def _source_of(folder: Path) -> str | None:
    """Return the source of a run that cannot be read, such as one of another version; or None."""
    try:
        said = json.loads((folder / _FILE).read_text(encoding="utf-8"))["provenance"]["source"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if isinstance(said, str) else None


def _named(home: Home, run: str | Path) -> Run:
    """Read the run of this name, or the model in this folder."""
    if isinstance(run, Path):
        return Run.read(run)
    try:
        return Run.read(home.find_run(run))
    except UsageError:
        if not (from_text(run) / _FILE).exists():
            raise
    return Run.read(from_text(run))


def _known(
    home: Home, runs: Sequence[Run], tickers: Sequence[str] | None, *, any_will_do: bool
) -> dict[Path, int]:
    """Return how many of the tickers each run knows, or else how many it could forecast.

    ``any_will_do``: take a run even if it knows none. Raises ModelError if there is no run to take.
    """
    if any_will_do or not tickers:
        return dict.fromkeys((run.folder for run in runs), 1)
    known = {
        run.folder: len(tickers) - len(resolve_names(run.ids, run.index.skipped, tickers)[1])
        for run in runs
    }
    if not any(known.values()):  # by the network that all series share
        known = {run.folder: _stored_of(home, run, tickers) for run in runs}
    if not any(known.values()):
        raise ModelError(_unknown_everywhere(runs, tickers))
    return known


def _stored_of(home: Home, run: Run, tickers: Sequence[str]) -> int:
    """Return how many of the tickers are stored, if the run has a network that all share."""
    if run.config.start != "pooled" or not run.source:
        return 0
    store = store_of(home, run)
    return sum(store.spelled(ticker) in store for ticker in tickers)


def _none_sound(source: str | None, damaged: Mapping[Path, ModelError]) -> ModelError:
    """Return the error where no run, or none of a source, can be read."""
    whys = [f"{why}; {in_place_of(folder, [])}" for folder, why in damaged.items()]
    if source is not None:
        whys.insert(0, f"no run of {source}; `forecaster fit --source {source}` makes one")
    return ModelError("\n".join(whys))


def _unknown_everywhere(runs: Sequence[Run], tickers: Sequence[str]) -> str:
    """Return why no run knows any of the tickers, as seen by the latest run of real prices."""
    run = next((run for run in runs if run.source != SIMULATED), runs[0])
    unknown = resolve_names(run.ids, run.index.skipped, tickers)[1]
    lines = [f"{name}: {why}" for name, why in unknown.items()]
    if len(runs) > 1:
        what = "the latest" if run is runs[0] else "the latest of real data"
        lines.append(
            f"This is run {run.name}, {what}; the others ({len(runs) - 1}) do not know "
            f"{'it' if len(unknown) == 1 else 'them'} either. `forecaster runs` lists them"
        )
    return "\n".join(lines)
