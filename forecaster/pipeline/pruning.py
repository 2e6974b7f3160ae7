"""Find files that a home no longer needs, and remove them."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from forecaster.errors import WriteError
from forecaster.files import FolderLock, Home, atomic, is_held
from forecaster.ingest import Store
from forecaster.record import record_of
from forecaster.storage import Run, runs_of

_DAY = 86_400.0


@dataclasses.dataclass(frozen=True)
class Unneeded:
    """Something that may be removed.

    - ``what``, ``why``: a description, and the reason why it is not needed
    - ``paths``: the files or folders
    - ``bytes``: the total size
    """

    what: str
    why: str
    paths: tuple[Path, ...]
    bytes: int


def find_unneeded(
    home: Home, *, runs: int = 5, days: float = 30.0, used: Iterable[str] = ()
) -> list[Unneeded]:
    """Return the files that a home no longer needs; change nothing.

    - ``runs``: number of latest runs to keep for each source. Runs that the user named and runs of
      an unfinished fit are kept, too
    - ``days``: compiled programs, and stores without a run or a record, count as unneeded if they
      have not been used for this long
    - ``used``: names of further runs to keep

    Damaged runs and whatever a process has locked are left alone.
    """
    sound, damaged = runs_of(home)
    old = list(_old_runs(home, sound, runs, set(used)))
    kept = [run for run in sound if run.folder not in {one.paths[0] for one in old}]
    found = [*old, *_old_cache(home, days)]
    if not damaged:  # otherwise a store may be the one that a damaged run reads
        found += _unread_stores(home, kept, days)
    return found


def prune(
    home: Home,
    found: Iterable[Unneeded],
    on_removed: Callable[[Unneeded], None] | None = None,
) -> None:
    """Remove the files that :func:`find_unneeded` has found.

    ``on_removed(one)``: called after each removal. Raises WriteError if a daily run is working, or
    if a file cannot be removed; earlier removals remain.
    """
    lock = FolderLock(home.daily)
    if home.daily.is_dir() and not lock.try_acquire():
        raise WriteError(f"{home.daily}: a daily run is working; wait for its end")
    try:
        for one in found:
            if any(is_held(path) for path in one.paths if path.is_dir()):
                continue  # locked meanwhile
            for path in one.paths:
                folder = path.is_dir() and not path.is_symlink()
                (atomic.remove_folder if folder else atomic.remove_file)(path)
            if on_removed is not None:
                on_removed(one)
    finally:
        lock.release()


def _old_runs(home: Home, sound: list[Run], most: int, used: set[str]) -> Iterator[Unneeded]:
    """Yield the runs without a name, except for the latest ones of their source."""
    unfinished = {folder.name for folder in home.unfinished_fits()}
    count: dict[str, int] = {}
    for run in reversed(sound):
        count[run.source] = number = count.get(run.source, 0) + 1
        named = run.name != run.folder.name
        needed = named or run.name in used or run.folder.name in unfinished
        if number > most and not needed and not is_held(run.folder):
            why = f"not among the latest {most} of {run.source or 'models without a source'}"
            yield Unneeded(f"run {run.name}", why, (run.folder,), run.bytes)


def _old_cache(home: Home, days: float) -> Iterator[Unneeded]:
    before = time.time() - days * _DAY
    old = [
        path
        for path in home.cache.rglob("*")
        if path.is_file() and max((stat := path.stat()).st_mtime, stat.st_atime) < before
    ]
    if old:
        why = f"not used for {days:g} days; made again when needed"
        yield Unneeded(f"{len(old)} files of the cache", why, tuple(old), _size(old))


def _unread_stores(home: Home, kept: list[Run], days: float) -> Iterator[Unneeded]:
    """Yield old stores without any run and without any recorded forecast."""
    read = {run.source for run in kept} | set(record_of(home).frames)
    before = time.time() - days * _DAY
    for store in Store.all_of(home, lambda message: None):
        newest = max((path.stat().st_mtime for path in store.folder.glob("*")), default=0.0)
        waited_for = home.unfinished_fits()  # an unfinished fit may need any source
        if store.source in read or newest > before or waited_for or is_held(store.folder):
            continue
        why = f"no run and no recorded forecast is of it, and it is {days:g} days old"
        folders = [store.folder, home.downloads / store.folder.name]
        folders = tuple(folder for folder in folders if folder.is_dir())
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        yield Unneeded(f"store of {store.source}", why, folders, _size(files))


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
