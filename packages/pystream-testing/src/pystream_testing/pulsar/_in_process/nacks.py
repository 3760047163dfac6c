"""The client's list of negative acknowledgements: asked for again 100 ms later, an entry at a time."""

from __future__ import annotations

from collections.abc import Callable

from pystream.protocols import Clock, Timer

__all__ = ["REDELIVERY_DELAY", "Nacks"]

REDELIVERY_DELAY = 0.1
"""Seconds from a negative acknowledgement to its redelivery request, at the least."""


class Nacks:
    """Which entries are to be asked for again, and when.

    Entries that come due together are one request. A further negative acknowledgement of
    an entry that waits already puts it off, as the client does.

    Args:
        clock: Keeps the delay.
        request: Asks the subscription for these entries, given by their numbers, in order.
    """

    __slots__ = ("_clock", "_due", "_request", "_timer")

    def __init__(self, clock: Clock, request: Callable[[list[int]], None]) -> None:
        self._clock = clock
        self._request = request
        self._due: dict[int, float] = {}
        self._timer: Timer | None = None

    def __contains__(self, entry: int) -> bool:
        return entry in self._due

    def __len__(self) -> int:
        return len(self._due)

    def add(self, entry: int) -> None:
        """Have an entry asked for again."""
        self._due[entry] = self._clock.now() + REDELIVERY_DELAY
        if self._timer is None:
            self._timer = self._clock.call_later(REDELIVERY_DELAY, self._fire)

    def clear(self) -> None:
        """Ask for nothing any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

        self._timer = None

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.now()
        due = sorted(entry for entry, at in self._due.items() if at <= now)
        for entry in due:
            del self._due[entry]

        # A timer may fire a little early (loops round): what is not due is waited for again.
        if self._due:
            self._timer = self._clock.call_later(min(self._due.values()) - now, self._fire)

        if due:
            self._request(due)
