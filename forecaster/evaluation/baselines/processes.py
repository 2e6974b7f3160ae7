"""Processes that work for this one, and end when it does."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has, however that was.

    One that waits for work would otherwise wait for ever when its parent is killed.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
