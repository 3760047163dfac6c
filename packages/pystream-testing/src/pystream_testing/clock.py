"""`VirtualClock`: the clock of a test, which stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from pystream.signal import Signal

__all__ = ["VirtualClock"]


class _Call:
    """A call that is to be made; a `pystream.protocols.Timer`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """See `pystream.protocols.Timer.cancel`."""
        self.callback = None


class VirtualClock:
    """Implements `pystream.protocols.Clock`; time passes only when `move` is called.

    Args:
        start: The time it shows at first, in seconds.
    """

    __slots__ = ("_calls", "_made", "_now")

    def __init__(self, start: float = 1000.0) -> None:
        self._now = float(start)
        self._calls: list[tuple[float, int, _Call]] = []
        self._made = 0

    def now(self) -> float:
        """The present time in seconds."""
        return self._now

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Call:
        """Have `callback` called once `delay` seconds (0 or more) have passed."""
        self._made += 1
        call = _Call(callback)
        heappush(self._calls, (self._now + delay, self._made, call))
        return call

    async def sleep(self, seconds: float) -> None:
        """Return once so many seconds have passed on this clock. Cancel safety: cancelling it changes nothing."""
        woken = Signal()
        timer = self.call_later(seconds, woken.wake)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    @property
    def next_due(self) -> float | None:
        """When the next call is to be made, or none if there is none."""
        calls = self._calls
        while calls and calls[0][2].callback is None:
            heappop(calls)

        return calls[0][0] if calls else None

    @property
    def is_due(self) -> bool:
        """Whether a call is to be made now."""
        calls = self._calls
        return bool(calls) and calls[0][0] <= self._now

    def move(self, to: float) -> bool:
        """Move to a time, never back, and make the calls that are due by then, in order.

        Calls that are asked for meanwhile are left for the next move. Returns whether any was made.
        """
        self._now = max(self._now, to)
        due: list[_Call] = []
        while self._calls and self._calls[0][0] <= self._now:
            due.append(heappop(self._calls)[2])

        made = False
        for call in due:
            callback, call.callback = call.callback, None
            if callback is not None:
                made = True
                callback()

        return made
