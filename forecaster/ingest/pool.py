"""A small pool of threads that never holds up the end of the program.

The threads of ``concurrent.futures`` are joined when Python exits: one that hangs in a request
would hang Ctrl-C too. These are daemons, and one that is overdue is given up and replaced.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_TICK = 0.2  # seconds between looks at the clock


class Done(NamedTuple):
    """One item with its result, or with the error that it ended in."""

    item: Any
    result: Any
    error: Exception | None


def run_all(
    work: Callable[[Any], Any],
    items: Sequence[Any],
    workers: int,
    overdue: Callable[[float], bool],
) -> Iterator[Done]:
    """Work on items in ``workers`` threads; each is given as it is done.

    ``overdue(since)``: whether an item begun then, by the monotonic clock, is to be given up. It
    ends in a TimeoutError, and its thread is left to itself. When the iterator is closed, no
    further item is begun.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Any, Exception | None]] = queue.SimpleQueue()
    for at in range(len(items)):
        waiting.put(at)
    begun: dict[int, float] = {}  # items under way: since when
    given_up: set[int] = set()
    closed = threading.Event()

    def loop() -> None:
        while not closed.is_set():
            try:
                at = waiting.get_nowait()
            except queue.Empty:
                return
            begun[at] = time.monotonic()
            try:
                done.put((at, work(items[at]), None))
            except Exception as error:
                done.put((at, None, error))
            if at in given_up:  # another thread is in this one's place
                return

    def start() -> None:
        threading.Thread(target=loop, daemon=True).start()

    for _ in range(min(workers, len(items))):
        start()
    left = set(range(len(items)))
    try:
        while left:
            try:
                at, result, error = done.get(timeout=_TICK)
            except queue.Empty:
                for at, since in list(begun.items()):
                    if at in left and overdue(since):
                        given_up.add(at)
                        left.discard(at)
                        start()
                        yield Done(items[at], None, TimeoutError("no answer in time"))
                continue
            if at in left:
                left.discard(at)
                begun.pop(at, None)
                yield Done(items[at], result, error)
    finally:
        closed.set()
