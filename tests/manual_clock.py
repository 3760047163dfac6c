"""`ManualClock`: a clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["ManualClock"]


class _Call:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Implements `pystream.protocols.Clock`; time passes in `advance` alone.

    Args:
        start: The time it shows at first, in seconds.
        early: How much sooner than asked a longer timer fires, in seconds, as a loop that rounds does.
    """

    def __init__(self, start: float = 100.0, *, early: float = 0.0) -> None:
        self._now = start
        self._early = early
        self._calls: list[tuple[float, int, _Call]] = []
        self._made = 0

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Call:
        assert delay >= 0, "a timer was set into the past"
        self._made += 1
        call = _Call(callback)
        heappush(self._calls, (self._now + (delay - self._early if delay > self._early else delay), self._made, call))
        return call

    def advance(self, seconds: float) -> None:
        """Let time pass; what comes due on the way is called at its time, in order."""
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, call = heappop(self._calls)
            self._now = max(self._now, due)
            callback, call.callback = call.callback, None
            if callback is not None:
                callback()

        self._now = max(self._now, end)

    @property
    def timers(self) -> int:
        """How many calls are still to be made."""
        return sum(call.callback is not None for _, _, call in self._calls)
