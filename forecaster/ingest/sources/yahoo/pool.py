"""Run work in a small pool of threads that never delays the end of the program.

When Python exits, it waits for the threads of ``concurrent.futures``, so a request that hangs would
make Ctrl-C hang, too. These threads are daemons, and one that is overdue is replaced.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

_TICK = 0.2  # seconds between checks for overdue items
Item = TypeVar("Item")
Result = TypeVar("Result")


class Done(NamedTuple, Generic[Item, Result]):
    """An item with its result or its error."""

    item: Item
    result: Result | None
    error: Exception | None


def run_all(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    overdue: Callable[[float], bool],
) -> Iterator[Done[Item, Result]]:
    """Call ``work(item)`` for all items in ``workers`` threads; yield each item when it is done.

    ``overdue(since)``: whether to give up an item that was begun at the time ``since`` of the
    monotonic clock. Its error is then a TimeoutError, and its thread is abandoned. No item is begun
    after the iterator is closed.
    """
    pool = _Pool(work, items, overdue)
    for _ in range(min(workers, len(items))):
        pool.start_thread()
    try:
        while pool.left:
            yield from pool.wait()
    finally:
        pool.closed.set()


class _Pool(Generic[Item, Result]):
    """The state of all items, by their index: waiting, begun, abandoned, or left to yield."""

    def __init__(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        overdue: Callable[[float], bool],
    ):
        self._work, self._items, self._overdue = work, items, overdue
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, Done[Item, Result]]] = queue.SimpleQueue()
        for index in range(len(items)):
            self._waiting.put(index)
        self._begun: dict[int, float] = {}  # when, by the monotonic clock
        self._abandoned: set[int] = set()
        self.left = set(range(len(items)))
        self.closed = threading.Event()

    def start_thread(self) -> None:
        """Start one more thread that works on waiting items."""
        threading.Thread(target=self._loop, daemon=True, name="forecaster ingest").start()

    def wait(self) -> Iterator[Done[Item, Result]]:
        """Yield the next item that is done, or the overdue ones if none is done for a moment."""
        try:
            index, done = self._done.get(timeout=_TICK)
        except queue.Empty:
            yield from self._abandon()
            return
        if index in self.left:
            self.left.discard(index)
            self._begun.pop(index, None)
            yield done

    def _abandon(self) -> Iterator[Done[Item, Result]]:
        """Yield overdue items as failed, and replace their threads."""
        for index, since in list(self._begun.items()):
            if index in self.left and self._overdue(since):
                self._abandoned.add(index)
                self.left.discard(index)
                self.start_thread()
                yield Done(self._items[index], None, TimeoutError("no answer in time"))

    def _loop(self) -> None:
        while not self.closed.is_set():
            try:
                index = self._waiting.get_nowait()
            except queue.Empty:
                return
            self._begun[index] = time.monotonic()
            self._done.put((index, self._run(self._items[index])))
            if index in self._abandoned:  # another thread has replaced this one
                return

    def _run(self, item: Item) -> Done[Item, Result]:
        try:
            return Done(item, self._work(item), None)
        except Exception as error:
            return Done(item, None, error)
