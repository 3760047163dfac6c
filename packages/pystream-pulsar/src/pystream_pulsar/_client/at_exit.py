"""Trap 8, its end: a client that is open, or only just closed, when the process exits aborts it.

The interpreter ends a foreign thread that asks for its lock during exit, and inside the
client's C++ that is an abort. The thread that closes a client does so even after it has
called back, to let go of the callback. So exit closes what is open, and in every case
waits until the callback itself is gone.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable
from typing import Any

from pystream_pulsar._client.callbacks import guarded

__all__ = ["GuardedClient", "close_all"]

_PAUSE = 0.001

_kept: set[GuardedClient] = set()


class GuardedClient:
    """A client of the binding that is closed at exit if nobody has closed it before.

    Args:
        native: The binding's client.
        timeout: Seconds an exit may wait for it, more than 0.
    """

    def __init__(self, native: Any, timeout: float) -> None:
        self.native = native
        self.timeout = timeout
        self._callback: Callable[[], object] | None = None
        _kept.difference_update([client for client in _kept if client.gone])
        _kept.add(self)

    @property
    def gone(self) -> bool:
        """Whether the client was closed and has let go of the callback."""
        return self._callback is not None and self._callback() is None

    def close_async(self, callback: Callable[..., None]) -> None:
        """Close the client and everything it has opened; `callback` is called when that is done."""
        answered = guarded(lambda *_: callback())
        # A weak reference that is looked at, not a finaliser: the client's thread, which drops the
        # last reference, must run no Python code in which it could lose the lock to the exit.
        self._callback = weakref.ref(answered)
        self.native.close_async(answered)

    def finish_by(self, deadline: float) -> None:
        """Close the client unless that was begun; block until it is gone, or `deadline` (monotonic)."""
        if self._callback is None:
            self.close_async(lambda: None)

        while not self.gone and time.monotonic() < deadline:
            time.sleep(_PAUSE)


@atexit.register
def close_all() -> None:
    """Close every client that is still open, each within its bound. Blocks."""
    begin = time.monotonic()
    for client in list(_kept):
        client.finish_by(begin + client.timeout)
