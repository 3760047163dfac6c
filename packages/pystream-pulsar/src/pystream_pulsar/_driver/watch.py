"""`Watch`: entries that are looked out for until a time each (trap 4)."""

from __future__ import annotations

from collections.abc import Callable

from pystream.protocols import Clock, Timer

from pystream_pulsar._driver.defence import Entry

__all__ = ["Watch"]

_SWEEP = 5.0  # seconds between two looks at the times; a watch ends up to that much late


class Watch:
    """Entries and the time until which each is watched.

    Args:
        clock: Keeps the times.
        ended: Called when the time of an entry is over.
    """

    __slots__ = ("_clock", "_ended", "_timer", "_until")

    def __init__(self, clock: Clock, ended: Callable[[Entry], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._until: dict[Entry, float] = {}
        self._timer: Timer | None = None

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._until

    def __bool__(self) -> bool:
        return bool(self._until)

    def begin(self, entry: Entry, seconds: float) -> None:
        """Watch an entry for `seconds` from now, whatever was said before."""
        self._until[entry] = self._clock.now() + seconds
        if self._timer is None:
            self._timer = self._clock.call_later(_SWEEP, self._sweep)

    def end(self, entry: Entry) -> None:
        """Watch an entry no longer."""
        self._until.pop(entry, None)

    def stop(self) -> None:
        """Watch nothing, and let no timer run."""
        self._until.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.now()
        for entry in [entry for entry, until in self._until.items() if until <= now]:
            self.end(entry)
            self._ended(entry)

        if self._until:
            self._timer = self._clock.call_later(_SWEEP, self._sweep)
