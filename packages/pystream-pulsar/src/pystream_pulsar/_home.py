"""`Home`: the event loop a connection belongs to, and the way to it from other threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pystream.errors import BrokerClosed
from pystream.signal import LoopCall

__all__ = ["Home"]


class Home:
    """The loop on which it is made. Calls from elsewhere wait in a deque for one coalesced wake-up.

    Attributes:
        thread: The identifier of the loop's thread; comparing it costs less than asking for the loop.
        calls: What other threads have asked for and the loop has not served yet.
    """

    __slots__ = ("_wake_up", "calls", "thread")

    def __init__(self) -> None:
        self.thread: int = threading.get_ident()
        self.calls: deque[Callable[[], object]] = deque()
        self._wake_up = LoopCall(self.serve)

    def here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return threading.get_ident() == self.thread

    def call(self, action: Callable[[], object]) -> None:
        """Have `action`, which must not raise, called on the loop. From any thread.

        Raises:
            BrokerClosed: The loop is closed.
        """
        self.calls.append(action)
        if not self._wake_up.request():
            raise BrokerClosed("the event loop of this Pulsar connection is closed")

    def run(self, action: Callable[[], object]) -> None:
        """Call `action` now if this is the loop's thread, else have it called there."""
        if self.here():
            action()
        else:
            self.call(action)

    def serve(self) -> None:
        """Make the calls that wait. On the loop."""
        calls = self.calls
        while calls:
            calls.popleft()()
