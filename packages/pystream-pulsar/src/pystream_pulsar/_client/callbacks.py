"""Trap 8: an exception that leaves a callback aborts the process, so none does.

The client calls back on threads of its own, or in line on the calling thread; the loop
that waited may be closed by then. Every callback handed to the client is made here: it
catches everything, and what it hands on to a loop goes through a `Signal`, which a closed
loop does not disturb.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pystream.signal import Signal

__all__ = ["Answer", "guarded"]

_log = logging.getLogger("pystream_pulsar")


def guarded(action: Callable[..., object]) -> Callable[..., None]:
    """`action` as a callback: it answers nothing and raises nothing.

    The client's calls keep the callback alive until it was called, and `action` with it.
    """

    def callback(*values: Any) -> None:
        try:
            action(*values)
        except BaseException as error:
            report(action, error)

    return callback


def report(action: object, error: BaseException) -> None:
    """Log what a callback raised; silent when not even that works any more, as during exit."""
    try:
        _log.error("a callback of the Pulsar client failed: %r", action, exc_info=error)
    except BaseException:
        return


class Answer:
    """What one asynchronous call of the client answers, awaited by one task on any loop.

    Args:
        late: Gets the answer, on the thread that brings it, when nobody waits any more; it
            puts away what the call has opened. None if the call opens nothing.
    """

    __slots__ = ("_abandoned", "_late", "_lock", "_signal", "_values", "callback")

    def __init__(self, late: Callable[..., object] | None = None) -> None:
        self._late = late
        self._lock = threading.Lock()
        self._signal = Signal()
        self._values: tuple[Any, ...] | None = None
        self._abandoned = False
        self.callback = guarded(self._arrived)

    async def wait(self) -> tuple[Any, ...]:
        """The values the callback got.

        Cancel safety: the answer then goes to `late`, whether it has come or not.
        """
        try:
            while self._values is None:
                await self._signal.wait()

        except BaseException:
            self._abandon()
            raise

        return self._values

    def _arrived(self, *values: Any) -> None:
        with self._lock:
            self._values = values
            abandoned = self._abandoned

        if not abandoned:
            self._signal.wake_from_thread()
        elif self._late is not None:
            self._late(*values)

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            values = self._values

        if values is not None and self._late is not None:
            self._late(*values)
