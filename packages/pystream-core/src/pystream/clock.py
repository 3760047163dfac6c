"""`LoopClock`: the clock of production, which is the event loop's own."""

from __future__ import annotations

from collections.abc import Callable

from pystream._loops import current_loop
from pystream.protocols import Timer

__all__ = ["LoopClock"]


class LoopClock:
    """The time of the loop on which it is made; implements `pystream.protocols.Clock`."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = current_loop()

    def now(self) -> float:
        """The loop's time in seconds, monotonic."""
        return self._loop.now()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the loop in `delay` seconds (0 or more), outside any task."""
        return self._loop.call_later(delay, callback)
