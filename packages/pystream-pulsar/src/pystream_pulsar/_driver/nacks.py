"""Trap 3: every negative acknowledgement re-arms the client's redelivery timer.

Sent in a steady stream, they would bring nothing back until the stream pauses. So they are
collected and sent in bursts at least 100 ms apart, and a delay is kept here: a message is
held until it is over, and only then negatively acknowledged.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count

from pystream.protocols import Clock, Timer

from pystream_pulsar._driver.defence import Defence
from pystream_pulsar.message import PulsarMessage

__all__ = ["BURST_INTERVAL", "Nacks"]

BURST_INTERVAL = 0.1
"""Seconds between two bursts, at the least."""


class Nacks(Defence):
    """The messages that wait for their negative acknowledgement.

    Args:
        clock: Keeps the delays and the pace.
        send: Sends one burst.
    """

    __slots__ = ("_clock", "_due", "_held", "_last_burst", "_number", "_send", "_timer", "_timer_at")

    def __init__(self, clock: Clock, send: Callable[[Sequence[PulsarMessage]], None]) -> None:
        self._clock = clock
        self._send = send
        self._held: list[tuple[float, int, PulsarMessage]] = []
        self._due: list[PulsarMessage] = []
        self._number = count()
        self._last_burst = float("-inf")
        self._timer: Timer | None = None
        self._timer_at = float("inf")

    @property
    def delayed(self) -> int:
        """How many are held for a delay that is not over."""
        return len(self._held)

    def held(self, message: PulsarMessage, delay: float) -> None:
        if delay > 0:
            heapq.heappush(self._held, (self._clock.now() + delay, next(self._number), message))
        else:
            self._due.append(message)

        self._arm()

    def waiting(self) -> list[PulsarMessage]:
        """All that wait, for their delay or for the next burst."""
        return [*self._due, *(message for _, _, message in self._held)]

    def stop(self) -> None:
        """Send nothing any more; what waits goes back to the server when the consumer closes."""
        self._disarm()
        self._due.clear()
        self._held.clear()

    def _arm(self) -> None:
        """Have the timer fire when the next burst may go out; it is moved only to an earlier time."""
        if self._due:
            at = self._last_burst + BURST_INTERVAL
        elif self._held:
            at = max(self._held[0][0], self._last_burst + BURST_INTERVAL)
        else:
            return

        if at < self._timer_at:
            self._disarm()
            self._timer_at = at
            self._timer = self._clock.call_later(max(0.0, at - self._clock.now()), self._fire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

        self._timer = None
        self._timer_at = float("inf")

    def _fire(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        now = self._clock.now()
        while self._held and self._held[0][0] <= now:
            self._due.append(heapq.heappop(self._held)[2])

        if self._due and now >= self._last_burst + BURST_INTERVAL:
            self._last_burst = now
            burst, self._due = self._due, []
            self._send(burst)

        self._arm()
