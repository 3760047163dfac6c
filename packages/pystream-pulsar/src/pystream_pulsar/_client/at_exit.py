"""Trap 8, its end: a client still open when the process exits aborts it, so exit closes it."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any

from pystream_pulsar._client.callbacks import guarded

__all__ = ["GuardedClient"]

_open: set[GuardedClient] = set()


class GuardedClient:
    """A client of the binding that is closed at exit if nobody has closed it before.

    Args:
        native: The binding's client.
        timeout: Seconds an exit may wait for all open clients, more than 0.
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
        """Block until the client is closed, or until `deadline` by `time.monotonic`."""
        if not self._begun:
            self.close_async(lambda: None)

        self._answered.wait(max(0.0, deadline - time.monotonic()))

    def _finish(self, callback: Callable[..., None]) -> None:
        _open.discard(self)
        self._answered.set()
        callback()


@atexit.register
def _close_all() -> None:
    clients = list(_open)
    if not clients:
        return

    deadline = time.monotonic() + max(client.timeout for client in clients)
    for client in clients:
        client.finish_by(deadline)
