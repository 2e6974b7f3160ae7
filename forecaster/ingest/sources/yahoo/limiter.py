"""How fast Yahoo is asked: a steady rate, and one cool-down shared by all threads."""

import random
import threading
import time
from collections.abc import Callable

from forecaster.errors import Interrupted, RateLimited

MOST_STRIKES = 6  # cool-downs in a row without one answer in between, and it gives up
_LONGEST = 600.0  # seconds


class Limiter:
    """Lets requests through, ``rate`` a second at the most.

    The first refusal ("too many requests") stops all threads for a while: as long as the server
    says, or ``cool_down`` seconds, doubled at each further refusal until an answer arrives.
    Refusals of requests that were already under way do not count again.

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
        self._paused_until = 0.0
        self._strikes = 0

    def enter(self) -> float:
        """Wait for a turn; returns the time at which it came, by the monotonic clock.

        Raises Interrupted when :meth:`stop` is called meanwhile.
        """
        while not self._stopped.is_set():
            with self._lock:
                now = time.monotonic()
                if now >= self._next:
                    # A little jitter, so that threads do not march in step.
                    self._next = now + self._gap * random.uniform(0.9, 1.1)
                    return now
                wait = self._next - now
            self._stopped.wait(wait)
        raise Interrupted("stopped while waiting for a turn")

    def succeeded(self) -> None:
        """An answer arrived: cool-downs begin short again."""
        with self._lock:
            self._strikes = 0

    def strike(self, entered: float, retry_after: float | None) -> None:
        """The server refused a request that entered at that time.

        Raises RateLimited, for good, when cool-downs did not help.
        """
        with self._lock:
            if entered <= self._struck:
                return
            self._strikes += 1
            if self._strikes > MOST_STRIKES:
                raise RateLimited(
                    "Yahoo refuses more requests for now (rate limit), also after "
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
            self._paused_until = self._next
        if self._on_wait:
            self._on_wait(wait)

    def stop(self) -> None:
        """Wake all threads that wait; they raise Interrupted."""
        self._stopped.set()

    def overdue(self, since: float, seconds: float) -> bool:
        """Whether so many seconds have passed since then, pauses not counted."""
        with self._lock:
            return time.monotonic() - max(since, self._paused_until) > seconds
