"""Sleeps that a stop cuts short."""

from __future__ import annotations

from pystream.protocols import Clock
from pystream.signal import Signal


class Pauses:
    """The pauses of one loop, on one clock. Everything belongs to that loop.

    Args:
        clock: The time they go by.
    """

    __slots__ = ("_clock", "_open", "_sleepers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sleepers: set[Signal] = set()
        self._open = True

    async def pause(self, delay: float) -> bool:
        """Sleep for `delay` seconds, or until `stop`; answers whether there was no stop.

        Any number of tasks may pause at once. Cancel safety: cancelling it changes nothing.
        """
        sleeper = Signal()
        self._sleepers.add(sleeper)
        timer = self._clock.call_later(delay, sleeper.wake)
        try:
            if self._open:
                await sleeper.wait()
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

        return self._open

    def stop(self) -> None:
        """End every pause, present and future. Synchronous, idempotent."""
        self._open = False
        for sleeper in self._sleepers:
            sleeper.wake()
