"""Trap 13: after a reconnect the server delivers again what is being handled.

A copy of a message in hand is not handled a second time. The delivery in hand adopts the
new object, since only settling the newest object of a batched message settles its entry.
In hand is everything pulled and not settled, and what is held for a delay or waits for its
negative acknowledgement to be sent.

Looked up by payload, whose hash Python keeps; the identity, which takes several calls into
the client, decides only between messages with equal payloads. On a non-persistent topic
all messages have the same identity, so none is ever taken for a copy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeAlias

from pystream_pulsar._driver.defence import Defence
from pystream_pulsar.message import PulsarMessage
from pystream_pulsar.transport import RawMessage

__all__ = ["InHand", "Table"]

Bucket: TypeAlias = "dict[Hashable, PulsarMessage]"
Table: TypeAlias = "dict[bytes, PulsarMessage | Bucket]"
"""Payload to the message in hand that has it, or to several by their mark."""


class InHand(Defence):
    """The messages in hand.

    Args:
        adopts: Whether identities tell messages apart: false on a non-persistent topic.

    Attributes:
        table: The session's fast path reads and writes it directly.
    """

    __slots__ = ("_adopts", "table")

    def __init__(self, *, adopts: bool) -> None:
        self._adopts = adopts
        self.table: Table = {}

    def __iter__(self) -> Iterator[PulsarMessage]:
        for found in self.table.values():
            if isinstance(found, dict):
                yield from found.values()
            else:
                yield found

    def arrived(self, message: PulsarMessage) -> bool:
        found = self.table.setdefault(message.payload, message)
        return found is not message and self._collided(message, found)

    def remove(self, message: PulsarMessage) -> bool:
        """Take a message out of hand; false if it was not in hand."""
        found = self.table.get(message.payload)
        if found is message:
            del self.table[message.payload]
            return True

        if not isinstance(found, dict):
            return False

        mark = self._mark(message)
        if found.get(mark) is not message:
            return False

        del found[mark]
        if not found:
            del self.table[message.payload]

        return True

    def holds(self, raw: RawMessage) -> bool:
        """Whether the message that `raw` stands for is in hand."""
        found = self.table.get(raw.payload)
        if found is None:
            return False

        if isinstance(found, dict):
            return any(message._raw is raw for message in found.values()) if not self._adopts else raw.identity in found

        return found._raw is raw or (self._adopts and found.identity == raw.identity)

    def _collided(self, message: PulsarMessage, found: PulsarMessage | Bucket) -> bool:
        bucket = found if isinstance(found, dict) else {self._mark(found): found}
        mark = self._mark(message)
        twin = bucket.get(mark)
        if twin is not None:
            twin._adopt(message._raw)
            return True

        bucket[mark] = message
        self.table[message.payload] = bucket
        return False

    def _mark(self, message: PulsarMessage) -> Hashable:
        return message.identity if self._adopts else id(message)
