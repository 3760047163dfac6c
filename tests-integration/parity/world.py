"""A world in which a scenario is played: a real server, or the one in process; the same calls for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pulsar
from pystream.errors import PyStreamError
from pystream.protocols import Outgoing
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar.transport import (
    ConsumerSpec,
    ProducerSpec,
    RawMessage,
    SubscriptionTypeName,
    Transport,
    TransportConsumer,
    TransportProducer,
)
from pystream_testing.pulsar.in_process import InProcessCluster, InProcessTransport

from tests.manual_clock import ManualClock

__all__ = ["InProcessWorld", "LiveWorld", "Reader", "World"]

_PATIENCE = 8.0
_SILENCE = 0.7


class Reader:
    """A consumer, and what it has received so far."""

    def __init__(self, world: World, consumer: TransportConsumer, label: str) -> None:
        self.consumer = consumer
        self.label = label
        self._world = world

    def pull(self, most: int = 1000) -> list[RawMessage]:
        """What is there now."""
        return list(self.consumer.pull(most))

    async def receive(self, count: int) -> list[RawMessage]:
        """The next `count` messages, recorded; fewer if they do not come."""
        messages = await self._world.collect(self, count, _PATIENCE)
        self._world.note(self.label, "received", [self._world.describe(message) for message in messages])
        return messages

    async def rest(self) -> list[RawMessage]:
        """Whatever comes for a while, recorded."""
        messages = await self._world.collect(self, 1000, _SILENCE)
        self._world.note(self.label, "then", [self._world.describe(message) for message in messages])
        return messages

    async def close(self, *, unsubscribe: bool = False) -> None:
        await self._world.settle()
        await self.consumer.close(unsubscribe=unsubscribe)
        await self._world.settle()


class World(ABC):
    """Opens handles, plays time, and writes the history down.

    Args:
        topic: A topic of the scenario's own.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.history: list[tuple[Any, ...]] = []
        self._entries: dict[tuple[int, int], int] = {}
        self._open: list[Transport] = []

    @abstractmethod
    def new_transport(self) -> Transport:
        """A transport that is not connected."""

    @abstractmethod
    async def step(self) -> None:
        """Let a moment pass."""

    @abstractmethod
    def now(self) -> float:
        """The time of this world."""

    @abstractmethod
    async def publish_batch(self, payloads: Sequence[bytes], key: str | None = None) -> None:
        """Store one entry with all of these."""

    async def transport(self) -> Transport:
        """A connected transport; closed with the world."""
        transport = self.new_transport()
        await transport.connect()
        self._open.append(transport)
        return transport

    async def close(self) -> None:
        for transport in self._open:
            await transport.close()

    def note(self, *what: Any) -> None:
        """Write something into the history."""
        self.history.append(what)

    def describe(self, message: RawMessage) -> tuple[Any, ...]:
        """What is the same in every world about a message: entries are numbered as they are seen."""
        identity = message.identity
        entry = self._entries.setdefault((identity.ledger, identity.entry), len(self._entries))
        return (
            message.payload.decode(),
            (entry, identity.batch_index, message.batch_size),
            message.redelivery_count,
            message.key,
            dict(message.properties),
        )

    async def reader(
        self,
        kind: SubscriptionTypeName = "Shared",
        subscription: str = "s",
        *,
        label: str = "a",
        position: Literal["Latest", "Earliest"] = "Latest",
        queue: int = 100,
        topic: str | None = None,
        transport: Transport | None = None,
    ) -> Reader:
        """A consumer, by default on a connection of its own."""
        spec = ConsumerSpec(
            topic=topic or self.topic,
            subscription=subscription,
            type=kind,
            initial_position=position,
            receiver_queue_size=queue,
        )
        transport = transport or await self.transport()
        return Reader(self, await transport.subscribe(spec, lambda: None), label)

    async def refused(self, what: str, opening: Callable[[], Any]) -> None:
        """Record the error that a call or an awaitable ends with."""
        try:
            result = opening()
            if hasattr(result, "__await__"):
                await result
        except PyStreamError as error:
            self.note(what, *self.told(error))
        else:
            self.note(what, "no error")

    def told(self, error: Exception | None) -> tuple[str, str, str | None]:
        """Type, text and result of an error, the topic's name left out."""
        text = str(error).replace(self.topic.partition("://")[2], "TOPIC")
        return (type(error).__name__, text, getattr(error, "result", None))

    async def producer(
        self, *, batching: bool = False, pending: int = 1000, transport: Transport | None = None
    ) -> TransportProducer:
        """A producer, by default on a connection of its own, whose messages are entries of their own."""
        spec = ProducerSpec(topic=self.topic, send_timeout=30, max_pending=pending, batching=batching)
        return await (transport or await self.transport()).produce(spec)

    async def publish(
        self,
        producer: TransportProducer,
        *payloads: bytes,
        key: str | bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> list[Exception | None]:
        """Send all at once, and return the answers in the order of the sends."""
        answers: dict[int, Exception | None] = {}
        for number, payload in enumerate(payloads):
            producer.send(Outgoing(self.topic, payload, headers or {}, key), _remember(answers, number))

        end = self.now() + _PATIENCE
        while len(answers) < len(payloads) and self.now() < end:
            await self.step()

        return [answers[number] for number in range(len(payloads))]

    def send(self, producer: TransportProducer, payload: bytes, answers: list[Exception | None]) -> None:
        """Send one message and do not wait for its answer."""
        producer.send(Outgoing(self.topic, payload, {}), answers.append)

    async def collect(self, reader: Reader, count: int, seconds: float) -> list[RawMessage]:
        """Up to `count` messages that come within a time."""
        messages: list[RawMessage] = []
        end = self.now() + seconds
        while True:
            messages += reader.pull(count - len(messages))
            if len(messages) >= count or self.now() >= end:
                return messages

            await self.step()

    async def settle(self, seconds: float = 0.4) -> None:
        """Let what is under way arrive: a client sends acknowledgements every 100 ms."""
        end = self.now() + seconds
        while self.now() < end:
            await self.step()


class LiveWorld(World):
    """A real server.

    Args:
        url: Its service URL.
        topic: A topic of the scenario's own.
    """

    def __init__(self, url: str, topic: str) -> None:
        super().__init__(topic)
        self._url = url

    def new_transport(self) -> Transport:
        return ClientTransport(ClientSettings(url=self._url))

    async def step(self) -> None:
        await anyio.sleep(0.02)

    def now(self) -> float:
        return anyio.current_time()

    async def publish_batch(self, payloads: Sequence[bytes], key: str | None = None) -> None:
        # The plugin's producers do not wait for a batch to fill, so its size would be chance.
        await anyio.to_thread.run_sync(self._publish_batch, payloads, key)

    def _publish_batch(self, payloads: Sequence[bytes], key: str | None) -> None:
        client = pulsar.Client(self._url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            producer = client.create_producer(
                self.topic,
                batching_enabled=True,
                batching_max_publish_delay_ms=5000,
                batching_type=pulsar.BatchingType.KeyBased,
            )
            for payload in payloads:
                producer.send_async(payload, lambda *_: None, partition_key=key)

            producer.flush()
        finally:
            client.close()


class InProcessWorld(World):
    """The transport under test, on a clock that only the scenario moves.

    Args:
        topic: Any topic.
        seed: For what the cluster chooses.
    """

    def __init__(self, topic: str = "persistent://public/default/parity", *, seed: int = 0) -> None:
        super().__init__(topic)
        self.clock = ManualClock()
        self.cluster = InProcessCluster(seed=seed, namespaces=["public/default"])

    def new_transport(self) -> Transport:
        return InProcessTransport(self.cluster, self.clock)

    async def step(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.clock.advance(0.02)

    def now(self) -> float:
        return self.clock.now()

    async def publish_batch(self, payloads: Sequence[bytes], key: str | None = None) -> None:
        producer = await self.producer(batching=True)
        answers = await self.publish(producer, *payloads, key=key)
        assert answers == [None] * len(payloads)
        await producer.close()


def _remember(answers: dict[int, Exception | None], number: int) -> Callable[[Exception | None], None]:
    def done(error: Exception | None) -> None:
        assert number not in answers, "a message was answered twice"
        answers[number] = error

    return done
