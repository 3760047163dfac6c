"""`PausedClock`: a clock that stands still until a check moves it."""

from __future__ import annotations

from pystream_testing.clock import VirtualClock

__all__ = ["PausedClock"]


class PausedClock(VirtualClock):
    """Time passes in `advance` alone."""

    __slots__ = ()

    def advance(self, seconds: float) -> None:
        """Let time pass; what comes due on the way is called at its time, in order."""
        end = self.now() + seconds
        while (due := self.next_due) is not None and due <= end:
            self.move(due)

        self.move(end)
