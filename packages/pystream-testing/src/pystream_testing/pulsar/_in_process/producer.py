"""`InProcessProducer`: makes entries of messages as the client does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from pystream.protocols import Clock, Outgoing
from pystream_pulsar import PulsarPublishError
from pystream_pulsar.transport import ProducerSpec

from pystream_testing.pulsar._in_process import refusals
from pystream_testing.pulsar._in_process.entries import Stored
from pystream_testing.pulsar._in_process.sizes import batched_size, single_size
from pystream_testing.pulsar._in_process.topic import Topic

__all__ = ["InProcessProducer"]

Done: TypeAlias = "Callable[[Exception | None], None]"

_MOST_IN_BATCH = 1000
_BATCH_BYTES = 128 * 1024


class InProcessProducer:
    """Implements `pystream_pulsar.transport.TransportProducer`.

    Sends that overlap before the loop turns share an entry per key, up to the client's bounds
    of 1000 messages and 128 KiB; without batching each is an entry of its own. Confirmations
    come when the loop turns.

    Args:
        spec: What it was opened with.
        topic: Where the entries go.
        name: Its own name, unique in the cluster.
        max_message_size: In bytes.
        loop: The running loop's own clock, which tells when it turns.
        wall: The time of publishing, in seconds since 1970.
        closed: Called once, when `close` begins.
    """

    def __init__(
        self,
        spec: ProducerSpec,
        topic: Topic,
        *,
        name: str,
        max_message_size: int,
        loop: Clock,
        wall: Callable[[], float],
        closed: Callable[[InProcessProducer], object],
    ) -> None:
        self._spec = spec
        self._topic = topic
        self._name = name
        self._max_message_size = max_message_size
        self._loop = loop
        self._wall = wall
        self._on_closed = closed
        self._closed = False
        self._sequence = count()
        self._batches: dict[str | None, list[Stored]] = {}
        self._batched = 0
        self._batch_bytes = 0
        self._unconfirmed: list[Done] = []
        self._turning = False

    def send(self, outgoing: Outgoing, done: Done) -> None:
        try:
            message = self._accepted(outgoing)
        except PulsarPublishError as error:
            done(error)
            return

        if self._spec.batching:
            self._add(message)
        else:
            self._topic.append([message], batched=False, producer=self._name)

        self._unconfirmed.append(done)
        if not self._turning:
            self._turning = True
            self._loop.call_later(0, self._turn)

    def begin_close(self) -> None:
        """Close at once; what was not confirmed fails, and open batches are never stored. Idempotent."""
        if self._closed:
            return

        self._closed = True
        self._on_closed(self)
        self._batches.clear()
        self._answer(refusals.not_confirmed(self._spec.topic, "AlreadyClosed"))

    async def close(self) -> None:
        """Close the producer.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self.begin_close()

    def _accepted(self, outgoing: Outgoing) -> Stored:
        topic = self._spec.topic
        key, properties = _key(outgoing.key, topic), _properties(outgoing, topic)
        if self._closed:
            raise refusals.not_confirmed(topic, "AlreadyClosed")

        if len(self._unconfirmed) >= self._spec.max_pending:
            raise refusals.not_confirmed(topic, "ProducerQueueIsFull")

        message = Stored(bytes(outgoing.payload), key, properties, next(self._sequence), round(self._wall(), 3))
        if self._size(message) > self._max_message_size:
            raise refusals.not_confirmed(topic, "MessageTooBig")

        return message

    def _size(self, message: Stored) -> int:
        return batched_size(message) if self._spec.batching else single_size(message, self._name)

    def _add(self, message: Stored) -> None:
        size = batched_size(message)
        if self._batches and self._batch_bytes + size > _BATCH_BYTES:
            self._store()

        self._batches.setdefault(message.key, []).append(message)
        self._batched += 1
        self._batch_bytes += size
        if self._batched >= _MOST_IN_BATCH:
            self._store()

    def _store(self) -> None:
        batches, self._batches = self._batches, {}
        self._batched = self._batch_bytes = 0
        for messages in batches.values():
            self._topic.append(messages, batched=True, producer=self._name)

    def _turn(self) -> None:
        self._turning = False
        self._store()
        self._answer(None)

    def _answer(self, error: Exception | None) -> None:
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for done in unconfirmed:
            done(error)


def _key(key: str | bytes | None, topic: str) -> str | None:
    if not isinstance(key, bytes):
        return key or None

    try:
        return key.decode() or None
    except UnicodeDecodeError as error:
        raise refusals.key_not_text(topic) from error


def _properties(outgoing: Outgoing, topic: str) -> dict[str, str]:
    properties = {}
    for name, value in outgoing.headers.items():
        try:
            properties[name] = value.decode()
        except UnicodeDecodeError as error:
            raise refusals.not_text(topic, name) from error

    return properties
