"""Corners that the plugin's driver never reaches, at the transport itself."""

from __future__ import annotations

import pytest
from pystream.protocols import Outgoing
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec, SubscriptionTypeName, TransportConsumer
from pystream_testing.pulsar.in_process import InProcessCluster, InProcessTransport

from tests.manual_clock import ManualClock
from tests.testing.pulsar.in_process.rig import TOPIC

pytestmark = [pytest.mark.anyio, pytest.mark.promise("TESTING-75")]


class World:
    """One connection, with a producer whose messages are entries of their own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.transport = InProcessTransport(InProcessCluster(), self.clock)

    async def consumer(self, kind: SubscriptionTypeName = "Shared", *, queue: int = 100) -> TransportConsumer:
        spec = ConsumerSpec(
            topic=TOPIC, subscription="billing", type=kind, initial_position="Latest", receiver_queue_size=queue
        )
        return await self.transport.subscribe(spec, lambda: None)

    async def publish(self, *payloads: bytes) -> None:
        producer = await self.transport.produce(
            ProducerSpec(topic=TOPIC, send_timeout=30, max_pending=100, batching=False)
        )
        for payload in payloads:
            producer.send(Outgoing(TOPIC, payload, {}), lambda _: None)


def received(consumer: TransportConsumer) -> list[tuple[bytes, int]]:
    return [(message.payload, message.redelivery_count) for message in consumer.pull(100)]


async def connected() -> World:
    world = World()
    await world.transport.connect()
    return world


async def test_what_waits_to_come_again_comes_once() -> None:
    """A message that was asked back and had no room yet comes once after the last consumer has left."""
    world = await connected()
    consumer = await world.consumer(queue=1)
    await world.publish(b"1", b"2")
    (message,) = consumer.pull(1)
    consumer.nack(message)
    world.clock.advance(0.2)
    await consumer.close()

    assert received(await world.consumer()) == [(b"1", 0), (b"2", 0)]


async def test_only_the_holder_asks_back() -> None:
    """A second request for an entry that a sibling has by now takes nothing from the sibling."""
    world = await connected()
    first = await world.consumer(queue=1)
    await world.publish(b"1", b"2")
    (message,) = first.pull(1)
    sibling = await world.consumer()
    first.nack(message)
    world.clock.advance(0.2)
    assert received(sibling) == [(b"1", 1)]

    first.nack(message)
    world.clock.advance(0.2)

    assert received(sibling) == []


async def test_a_closed_consumer_asks_for_nothing() -> None:
    """A request that was not sent when its consumer closed is never sent, and leaves no timer."""
    world = await connected()
    consumer = await world.consumer("Exclusive")
    await world.publish(b"1")
    (message,) = consumer.pull(1)
    consumer.nack(message)
    await consumer.close()
    assert world.clock.timers == 0

    following = await world.consumer("Exclusive")
    assert received(following) == [(b"1", 0)]
    world.clock.advance(0.2)
    assert received(following) == []


@pytest.mark.promise("TESTING-79")
async def test_a_batch_that_a_close_overtakes_is_never_stored() -> None:
    """On a server chance decides whether such a batch was sent; here it fails and is nowhere: assert nothing of it."""
    world = await connected()
    reader = await world.consumer()
    producer = await world.transport.produce(ProducerSpec(topic=TOPIC, send_timeout=30, max_pending=100))
    answers: list[Exception | None] = []
    producer.send(Outgoing(TOPIC, b"open", {}), answers.append)
    await producer.close()
    world.clock.advance(1)

    assert [type(answer).__name__ for answer in answers] == ["PulsarPublishError"]
    assert received(reader) == []
