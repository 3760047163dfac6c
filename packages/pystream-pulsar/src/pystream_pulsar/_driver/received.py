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

__all__ = ["REMEMBERED_BYTES", "Received"]

REMEMBERED_BYTES = 64 * 1024
"""A pull with larger payloads is not remembered: what is kept must stay small."""

_PULLS = 64
_ENTRIES = 256


class Received:
    """The highest index received of each of the last entries.

    What it has forgotten is not taken for received: a message that was settled is then
    handled once more, and none is lost.

    Attributes:
        remember: Keeps the messages of one pull.
    """

    __slots__ = ("_highest", "_pulls", "remember")

    def __init__(self) -> None:
        self._pulls: deque[Sequence[RawMessage]] = deque(maxlen=_PULLS)
        self._highest: OrderedDict[Entry, int] = OrderedDict()
        self.remember = self._pulls.append

    def highest(self, entry: Entry) -> int:
        """The highest index of `entry` received, as far as it is remembered; -1 if it is not."""
        while self._pulls:
            for raw in self._pulls.popleft():
                self._note(raw.identity)

        return self._highest.get(entry, -1)

    def forget(self) -> None:
        """Take nothing that has come so far for received."""
        self._pulls.clear()
        self._highest.clear()

    def _note(self, identity: Identity) -> None:
        if identity.index < 0:
            return

        entry, index = identity[:3], identity.index
        self._highest[entry] = max(index, self._highest.pop(entry, -1))
        if len(self._highest) > _ENTRIES:
            self._highest.popitem(last=False)
