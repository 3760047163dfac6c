"""What neighbours rest on (trap 4): how far an entry has been received.

The messages of an entry arrive in the order of their indices, so the highest one seen says
which were received. To ask a message for its index takes several calls into the client, so
nothing is asked on arrival: the last pulls are kept as they came, within a bound, and
looked through when the first message of an entry is to be asked back. When a pull drops
out of the bound while one of its messages is still in hand, the end of that message's
entry is looked up, once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import chain

from pystream_pulsar._driver.defence import Entry
from pystream_pulsar._driver.in_hand import InHand
from pystream_pulsar.transport import Identity, RawMessage

__all__ = ["Received"]

_BYTES = 1024 * 1024  # a producer's batch is 128 KiB by default
_MESSAGES = 1024
_ENTRIES = 1024


class Received:
    """The highest index received of each of the last entries, and of those with messages in hand.

    What it has forgotten is not taken for received: a message that was settled is then
    handled once more, and none is lost.

    Args:
        in_hand: The messages in hand.
    """

    __slots__ = ("_bytes", "_highest", "_in_hand", "_messages", "_pulls")

    def __init__(self, in_hand: InHand) -> None:
        self._in_hand = in_hand
        self._pulls: deque[tuple[int, Sequence[RawMessage], list[bytes]]] = deque()
        self._bytes = 0
        self._messages = 0
        self._highest: OrderedDict[Entry, int] = OrderedDict()

    def remember(self, raws: Sequence[RawMessage]) -> None:
        """Keep the messages of one pull."""
        payloads = [raw.payload for raw in raws]
        size = sum(map(len, payloads))
        self._pulls.append((size, raws, payloads))
        self._bytes += size
        self._messages += len(raws)
        while self._messages > _MESSAGES or self._bytes > _BYTES:
            self._drop_oldest()

    def highest(self, entry: Entry) -> int:
        """The highest index of `entry` received, as far as it is remembered; -1 if it is not."""
        for _, raws, _ in self._pulls:
            for raw in raws:
                self._note(raw.identity)

        self._drop_all()
        return self._highest.get(entry, -1)

    def forget(self) -> None:
        """Take nothing that has come so far for received."""
        self._drop_all()
        self._highest.clear()

    def _drop_oldest(self) -> None:
        size, raws, payloads = self._pulls.popleft()
        self._bytes -= size
        self._messages -= len(raws)
        table = self._in_hand.table
        if table.keys().isdisjoint(payloads):  # most often, and one call for the whole pull
            return

        for place, raw in enumerate(raws):
            if raw.payload in table and self._in_hand.holds(raw) and raw.batch_size > 1:
                self._note_rest(chain(raws[place:], *(later for _, later, _ in self._pulls)))

    def _note_rest(self, raws: Iterable[RawMessage]) -> None:
        """Note how far the entry of the first of these goes on without a break."""
        entry: Entry | None = None
        for raw in raws:
            identity = raw.identity
            entry = entry or identity[:3]
            if identity[:3] != entry:
                return

            self._note(identity)

    def _drop_all(self) -> None:
        self._pulls.clear()
        self._bytes = 0
        self._messages = 0

    def _note(self, identity: Identity) -> None:
        if identity.batch_index < 0:
            return

        entry, index = identity[:3], identity.batch_index
        self._highest[entry] = max(index, self._highest.pop(entry, -1))
        if len(self._highest) > _ENTRIES:
            self._highest.popitem(last=False)
