"""List, rename and remove the runs of a home, and choose the one to forecast with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from forecaster.errors import ModelError, UsageError, listed
from forecaster.files import (
    Home,
    atomic,
    from_text,
    is_ahead,
    order_of_time,
    renamed,
    run_name,
    run_time,
)
from forecaster.forecasting import resolve_names
from forecaster.storage.runs.run import Run, store_of

SIMULATED = "simulated"
_FILE = "model.json"


def runs_of(home: Home) -> tuple[list[Run], dict[Path, str]]:
    """Return all runs, see :meth:`Home.runs`, and the errors of damaged ones by folder."""
    runs: list[Run] = []
    damaged: dict[Path, str] = {}
    for folder in home.runs():
        try:
            runs.append(Run.read(folder))
        except ModelError as error:
            damaged[folder] = str(error)
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
    passed_over: dict[Path, str] | None = None,
) -> Run:
    """Return a run by its name, or else the run that fits some tickers best.

    Runs of real prices come before simulated ones; then those that know more of the tickers; then
    those of the source that was fitted last; then the latest. If the latest of all is damaged, only
    runs of the same source count, or those of real prices if its source cannot be read.

    - ``run``: the name of a run of the home, or any folder with a model
    - ``tickers``: None: any
    - ``on_notice(message)``: called where several could be meant, with the chosen run and why newer
      ones were not chosen, with a damaged one that was passed over, and with runs dated later than
      now, which are not the latest
    - ``source``: the source of the run; None: any
    - ``passed_over``: runs that turned out to be damaged when they were opened, with the reason;
      takes those in place of which an older one is returned. A run whose source cannot be read may
      be of any

    Raises ModelError when there is none, the latest is damaged and no older one can take its place,
    or none knows any of the tickers; UsageError when there is none of this name.
    """
    if run is not None:
        return _named(home, run)
    latest, passed_over = home.latest_run(), {} if passed_over is None else passed_over
    every, broken = runs_of(home)
    broken |= passed_over
    source_of = {run.folder: run.source for run in every}
    say = on_notice or (lambda message: None)
    for line in notices_of_ahead(run for run in every if source in (None, run.source)):
        say(line)
    wanted = source_of.get(latest) if source is None and latest in broken else source
    sound = [run for run in reversed(every) if run.folder not in broken]
    runs = [run for run in sound if wanted in (None, run.source)]
    if source is None and latest in broken and wanted is None:  # it may be of any but invented data
        runs = [run for run in runs if run.source != SIMULATED]
    if not runs:
        raise _none_sound(source, sound, broken)
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
    for folder, why in broken.items():
        later = order_of_time(folder) > order_of_time(chosen.folder)
        if later and source_of.get(folder, chosen.source) == chosen.source:
            say(f"Warning: passed over, since it is damaged: run {run_name(folder)}: {why}")
            passed_over[folder] = why
    newer = [run.name for run in runs[: runs.index(chosen)]]
    if source is None and (newer or sum(map(bool, known.values())) > 1):  # others could be meant
        say(f"Run: {chosen}")
        if newer:
            why = "of simulated data or another source, or without some of the tickers"
            say(f"  newer, but not taken ({why}): {listed(newer)}; --run NAME takes one")
    return chosen


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


def _none_sound(source: str | None, sound: Sequence[Run], broken: Mapping[Path, str]) -> ModelError:
    """Return the error where no run, or none of a source, can be read."""
    whys = "".join(
        f"\n{why}. `forecaster runs remove {run_name(folder)}` removes it"
        for folder, why in broken.items()
    )
    if source is not None:
        return ModelError(f"no run of {source}; `forecaster fit --source {source}` makes one{whys}")
    more = f"; --run takes another: {listed(run.name for run in sound)}" if sound else ""
    return ModelError(f"no run can take the place of the latest, which is damaged{more}{whys}")


def notices_of_ahead(runs: Iterable[Run]) -> list[str]:
    """Return a line for each run that is dated later than now."""
    return [
        f"Warning: run {run.name} is dated {run_time(run.folder):%Y-%m-%d}, later than now: a "
        "clock was wrong. It is taken only if no other can be; `forecaster runs remove "
        f"{run.name}` removes it"
        for run in runs
        if is_ahead(run.folder)
    ]


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
