"""`PausedClock`: a clock that stands still until a check moves it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["PausedClock"]


class _Call:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class PausedClock:
    """Implements `pystream.protocols.Clock`; time passes in `advance` alone."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._calls: list[tuple[float, int, _Call]] = []
        self._made = 0

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Call:
        self._made += 1
        call = _Call(callback)
        heappush(self._calls, (self._now + delay, self._made, call))
        return call

    def advance(self, seconds: float) -> None:
        """Let time pass; what comes due on the way is called at its time, in order."""
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, call = heappop(self._calls)
            self._now = max(self._now, due)
            if call.callback is not None:
                call.callback()

        self._now = end
