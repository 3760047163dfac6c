"""KEY_SHARED: a key belongs to one consumer at a time."""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.consumer import InProcessConsumer
    from pystream_testing.pulsar._in_process.entries import Entry

__all__ = ["KeyShared"]


class KeyShared:
    """Keys are spread over the consumers by a hash; one that joins or leaves moves only its own.

    A key that is in flight on another consumer waits until it is settled or given back
    there. The server's own hash ranges are not imitated.

    Args:
        random: Seeds the hash.
    """

    individual = True

    def __init__(self, random: Random) -> None:
        self._salt = random.randbytes(8)
        self._consumers: list[InProcessConsumer] = []
        self._in_flight: dict[str, tuple[InProcessConsumer, int]] = {}

    @property
    def ready(self) -> bool:
        return any(consumer.permits > 0 for consumer in self._consumers)

    def admits(self) -> bool:
        return True

    def joined(self, consumer: InProcessConsumer) -> bool:
        self._consumers.append(consumer)
        return False

    def left(self, consumer: InProcessConsumer) -> bool:
        self._consumers.remove(consumer)
        return False

    def lane(self, entry: Entry) -> str:
        return entry.lane

    def choose(self, entry: Entry) -> InProcessConsumer | None:
        lane = entry.lane
        owner = max(self._consumers, key=lambda consumer: self._weight(consumer, lane))
        holder, _ = self._in_flight.get(lane, (owner, 0))
        return owner if holder is owner and owner.permits > 0 else None

    def sent(self, entry: Entry, consumer: InProcessConsumer) -> None:
        _, count = self._in_flight.get(entry.lane, (consumer, 0))
        self._in_flight[entry.lane] = (consumer, count + 1)

    def returned(self, entry: Entry) -> None:
        holder, count = self._in_flight.pop(entry.lane)
        if count > 1:
            self._in_flight[entry.lane] = (holder, count - 1)

    def _weight(self, consumer: InProcessConsumer, lane: str) -> bytes:
        return blake2b(f"{consumer.number}/{lane}".encode(), digest_size=8, key=self._salt).digest()
