"""What a topic stores, and what a consumer is handed of it.

An *entry* is what the server stores, counts and delivers: one message, or a producer
batch. A *copy* is one delivery of an entry to one consumer: the entry is consumed once
every message of one and the same copy is acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pystream_pulsar.transport import Identity

__all__ = ["Copy", "Entry", "InProcessMessage", "Stored"]

_LEDGER, _ENTRY, _BATCH_INDEX, _BATCH_SIZE = 1, 2, 4, 6  # fields of `MessageIdData` in Pulsar's protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """One message as its producer sent it; shared by all subscriptions."""

    payload: bytes
    key: str | None
    properties: Mapping[str, str]
    sequence: int
    publish_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a topic.

    Attributes:
        topic: The full topic name.
        ledger: The number of the topic's ledger.
        number: Its place in the topic: the offset in the log.
        messages: One or more.
        batched: Whether it is a producer batch, be it of one message.
        producer: The name of the producer.
    """

    topic: str
    ledger: int
    number: int
    messages: tuple[Stored, ...]
    batched: bool
    producer: str

    @property
    def lane(self) -> str:
        """What KEY_SHARED goes by. Messages without a key are spread, each by a name of its own."""
        first = self.messages[0]
        return f"key/{first.key}" if first.key else f"none/{self.producer}/{first.sequence}"


class Copy:
    """One delivery of an entry to one consumer.

    Args:
        entry: What was delivered.
        redelivery_count: How often the entry had been redelivered before.
    """

    __slots__ = ("entry", "redelivery_count", "unsettled")

    def __init__(self, entry: Entry, redelivery_count: int) -> None:
        self.entry = entry
        self.redelivery_count = redelivery_count
        self.unsettled: set[int] = set(range(len(entry.messages)))

    def messages(self) -> list[InProcessMessage]:
        """What the consumer is to be handed, in the order of the batch."""
        return [InProcessMessage(self, index) for index in range(len(self.entry.messages))]


class InProcessMessage:
    """A received message; implements `pystream_pulsar.transport.RawMessage`.

    Args:
        copy: The delivery it came with.
        index: Its place in the entry.
    """

    __slots__ = ("_stored", "copy", "index", "payload")

    def __init__(self, copy: Copy, index: int) -> None:
        self.copy = copy
        self.index = index
        self._stored = copy.entry.messages[index]
        self.payload: bytes = self._stored.payload

    @property
    def identity(self) -> Identity:
        entry = self.copy.entry
        return Identity(entry.topic, entry.ledger, entry.number, self.index if entry.batched else -1)

    @property
    def batch_size(self) -> int:
        return len(self.copy.entry.messages)

    @property
    def chunked(self) -> bool:
        """Never: no producer of this transport makes chunks."""
        return False

    @property
    def redelivery_count(self) -> int:
        return self.copy.redelivery_count

    @property
    def position(self) -> bytes:
        entry = self.copy.entry
        position = _field(_LEDGER, entry.ledger) + _field(_ENTRY, entry.number)
        if entry.batched:
            position += _field(_BATCH_INDEX, self.index) + _field(_BATCH_SIZE, len(entry.messages))

        return position

    @property
    def key(self) -> str | None:
        return self._stored.key

    @property
    def ordering_key(self) -> str | None:
        """None: a publish cannot state one yet."""
        return None

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self._stored.properties)

    @property
    def publish_time(self) -> float:
        return self._stored.publish_time

    @property
    def event_time(self) -> float | None:
        """None: a publish cannot state one yet."""
        return None

    @property
    def producer_name(self) -> str:
        return self.copy.entry.producer


def _field(number: int, value: int) -> bytes:
    """A field with a number of 0 or more, as protobuf encodes it."""
    encoded = bytearray([number << 3])
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7

    encoded.append(value)
    return bytes(encoded)
