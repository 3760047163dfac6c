"""What neighbours rest on (trap 4): how far an entry has been received.

The messages of an entry arrive in the order of their indices, so the highest one seen says
which were received. To ask a message for its index takes several calls into the client, so
nothing is asked on arrival: the last pulls are kept as they came, within a bound, and
looked through when the first message of an entry is to be asked back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from pystream_pulsar._driver.defence import Entry
from pystream_pulsar.transport import Identity, RawMessage

__all__ = ["Received"]

_BYTES = 8 * 1024 * 1024  # more than the largest entry a server takes by default
_PULLS = 64
_ENTRIES = 256


class Received:
    """The highest index received of each of the last entries.

    What it has forgotten is not taken for received: a message that was settled is then
    handled once more, and none is lost.
    """

    __slots__ = ("_bytes", "_highest", "_pulls")

    def __init__(self) -> None:
        self._pulls: deque[tuple[int, Sequence[RawMessage]]] = deque()
        self._bytes = 0
        self._highest: OrderedDict[Entry, int] = OrderedDict()

    def remember(self, raws: Sequence[RawMessage], size: int) -> None:
        """Keep the messages of one pull, whose payloads have `size` bytes together."""
        self._pulls.append((size, raws))
        self._bytes += size
        while self._bytes > _BYTES or len(self._pulls) > _PULLS:
            self._bytes -= self._pulls.popleft()[0]

    def highest(self, entry: Entry) -> int:
        """The highest index of `entry` received, as far as it is remembered; -1 if it is not."""
        for _, raws in self._pulls:
            for raw in raws:
                self._note(raw.identity)

        self._pulls.clear()
        self._bytes = 0
        return self._highest.get(entry, -1)

    def forget(self) -> None:
        """Take nothing that has come so far for received."""
        self._pulls.clear()
        self._bytes = 0
        self._highest.clear()

    def _note(self, identity: Identity) -> None:
        if identity.index < 0:
            return

        entry, index = identity[:3], identity.index
        self._highest[entry] = max(index, self._highest.pop(entry, -1))
        if len(self._highest) > _ENTRIES:
            self._highest.popitem(last=False)
