"""Trap 8, its end: a client still open when the process exits aborts it, so exit closes it."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any

from pystream_pulsar._client.callbacks import guarded

__all__ = ["GuardedClient", "close_all"]

_open: set[GuardedClient] = set()


class GuardedClient:
    """A client of the binding that is closed at exit if nobody has closed it before.

    Args:
        native: The binding's client.
        timeout: Seconds an exit may wait for it, more than 0.
    """

    def __init__(self, native: Any, timeout: float) -> None:
        self.native = native
        self.timeout = timeout
        self._answered = threading.Event()
        self._begun = False
        _open.add(self)

    def close_async(self, callback: Callable[..., None]) -> None:
        """Close the client and everything it has opened; `callback` is called when that is done."""
        self._begun = True
        self.native.close_async(guarded(lambda *_: self._finish(callback)))

    def finish_by(self, deadline: float) -> None:
        """Close the client unless that was begun; block until it is closed, or `deadline` (monotonic)."""
        if not self._begun:
            self.close_async(lambda: None)

        self._answered.wait(max(0.0, deadline - time.monotonic()))

    def _finish(self, callback: Callable[..., None]) -> None:
        _open.discard(self)
        self._answered.set()
        callback()


@atexit.register
def close_all() -> None:
    """Close every client that is still open, each within its bound. Blocks."""
    begin = time.monotonic()
    for client in list(_open):
        client.finish_by(begin + client.timeout)
