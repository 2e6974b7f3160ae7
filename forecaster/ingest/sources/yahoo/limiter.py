"""Limit the rate of requests to Yahoo, with one cool-down shared by all threads."""

import random
import threading
import time
from collections.abc import Callable

from forecaster.errors import Interrupted, RateLimited

MOST_STRIKES = 6  # cool-downs in a row, without an answer in between, before it gives up
_LONGEST = 600.0  # seconds


class Limiter:
    """A gate that lets at most ``rate`` requests a second through.

    The first refusal ("too many requests") stops all threads: as long as the server asks for, or
    ``cool_down`` seconds, doubled at each further refusal until an answer arrives. Refusals of
    requests that were already under way do not count again.

    ``on_wait(seconds)`` is called at each cool-down.
    """

    def __init__(
        self,
        rate: float,
        cool_down: float = 30.0,
        on_wait: Callable[[float], None] | None = None,
    ):
        self._gap = 1.0 / rate
        self._cool_down = cool_down
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._next = 0.0  # when the next request may start, by the monotonic clock
        self._struck = -1.0  # when the latest cool-down began
        self._strikes = 0

    def enter(self) -> float:
        """Wait until the next request may start; return the time by the monotonic clock.

        Raises Interrupted if :meth:`stop` is called meanwhile.
        """
        while not self._stopped.is_set():
            with self._lock:
                now = time.monotonic()
                if now >= self._next:
                    # A little jitter keeps requests from arriving in lockstep.
                    self._next = now + self._gap * random.uniform(0.9, 1.1)
                    return now
                wait = self._next - now
            self._stopped.wait(wait)
        raise Interrupted("stopped while waiting for a turn")

    def succeeded(self) -> None:
        """Note that an answer arrived: the next cool-down is a short one again."""
        with self._lock:
            self._strikes = 0

    def strike(self, entered: float, retry_after: float | None) -> None:
        """Start a cool-down after a refusal.

        - ``entered``: when the refused request started, by the monotonic clock
        - ``retry_after``: the seconds that the server asks to wait, if any

        Raises RateLimited, marked as final, after too many cool-downs in a row.
        """
        with self._lock:
            if entered <= self._struck:
                return
            self._strikes += 1
            if self._strikes > MOST_STRIKES:
                raise RateLimited(
                    "Yahoo refuses more requests for now (rate limit), even after "
                    f"{MOST_STRIKES} pauses. What has arrived is kept; wait an hour and run the "
                    "same command again",
                    final=True,
                )
            wait = retry_after
            if wait is None:
                wait = self._cool_down * 2 ** (self._strikes - 1) * random.uniform(1.0, 1.2)
            wait = min(wait, _LONGEST)
            self._struck = time.monotonic()
            self._next = max(self._next, self._struck + wait)
        if self._on_wait:
            self._on_wait(wait)

    def stop(self) -> None:
        """Wake all waiting threads; they raise Interrupted."""
        self._stopped.set()
