"""`RedeliverySchedule`: items held back until their time has come, by a clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from pystream.protocols import Clock, Timer

__all__ = ["RedeliverySchedule"]

T = TypeVar("T")


class RedeliverySchedule(Generic[T]):
    """A heap of due times with one timer, which is set to the earliest.

    An item is handed over on the clock's loop, outside any task, at its time or later and
    never before it. Items that are due together come in the order of their times, and of
    their adding where the times are equal. Belongs to the clock's loop.

    Args:
        clock: The clock that the delays go by.
        on_due: Called with each item whose time has come; must not raise.
    """

    __slots__ = ("_added", "_clock", "_heap", "_on_due", "_timer")

    def __init__(self, clock: Clock, on_due: Callable[[T], object]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[float, int, T]] = []
        self._added = 0
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, delay: float, item: T) -> None:
        """Hold `item` for `delay` seconds, a finite number of 0 or more."""
        self._added += 1
        entry = (self._clock.now() + delay, self._added, item)
        heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._set_timer(delay)

    def clear(self) -> None:
        """Forget everything that is held; nothing is handed over."""
        self._heap.clear()
        self._cancel_timer()

    def _set_timer(self, delay: float) -> None:
        self._cancel_timer()
        self._timer = self._clock.call_later(delay, self._fire)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.now()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])

        # A timer may fire a little early (loops round): what is not due is waited for again.
        if self._heap:
            self._set_timer(self._heap[0][0] - now)

        for item in due:
            self._on_due(item)
