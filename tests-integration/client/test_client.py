"""The transport over the real client, against the embedded server, with SHARED subscriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from live.choice import LiveServer
from pystream.errors import DecodeError, PublishError
from pystream.protocols import Outgoing
from pystream.signal import Signal
from pystream_pulsar._client import binding
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec, RawMessage, TransportConsumer, TransportProducer

pytestmark = [pytest.mark.anyio, pytest.mark.gate]


class Reader:
    """A consumer and a loop that sleeps whenever a pull was short."""

    def __init__(self, consumer: TransportConsumer, signal: Signal) -> None:
        self.consumer = consumer
        self._signal = signal

    async def read(self, count: int, room: int = 16) -> list[RawMessage]:
        """The next `count` messages, within 20 seconds; not acknowledged."""
        messages: list[RawMessage] = []
        with anyio.fail_after(20):
            while len(messages) < count:
                wanted = min(room, count - len(messages))
                pulled = self.consumer.pull(wanted)
                messages += pulled
                if len(pulled) < wanted:
                    await self._signal.wait()

        return messages

    async def quiet(self, seconds: float = 0.5) -> bool:
        """Whether nothing comes for a while."""
        with anyio.move_on_after(seconds):
            while not self.consumer.pull(1):
                await self._signal.wait()

            return False

        return True


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    """A topic of the test's own."""
    return f"persistent://public/default/{unique('client')}"


@pytest.fixture
async def transport(pulsar_server: LiveServer) -> AsyncIterator[ClientTransport]:
    """A connected transport."""
    transport = ClientTransport(ClientSettings(url=pulsar_server.url))
    await transport.connect()
    yield transport
    await transport.close()


async def subscribe(transport: ClientTransport, topic: str, queue: int = 100) -> Reader:
    """A SHARED consumer of the subscription `s`."""
    signal = Signal()
    spec = ConsumerSpec(
        topic=topic, subscription="s", type="Shared", initial_position="Earliest", receiver_queue_size=queue
    )
    return Reader(await transport.subscribe(spec, signal.wake_from_thread), signal)


async def produce(transport: ClientTransport, topic: str, pending: int = 1000) -> TransportProducer:
    """A producer."""
    return await transport.produce(ProducerSpec(topic=topic, send_timeout=30, max_pending=pending))


async def publish(producer: TransportProducer, *messages: Outgoing) -> list[Exception | None]:
    """What the server answered to each, all sent at once; in the order of the answers."""
    answers: list[Exception | None] = []
    signal = Signal()

    def done(error: Exception | None) -> None:
        answers.append(error)
        signal.wake_from_thread()

    for message in messages:
        producer.send(message, done)

    with anyio.fail_after(20):
        while len(answers) < len(messages):
            await signal.wait()

    return answers


def numbered(topic: str, count: int) -> list[Outgoing]:
    """Messages whose payload is their number."""
    return [Outgoing(topic, str(number).encode(), {}) for number in range(count)]


@pytest.mark.promise("PULSAR-51")
async def test_the_server_says_who_it_is(pulsar_server: LiveServer) -> None:
    """Connecting gives the version and the limit of a real server."""
    transport = ClientTransport(ClientSettings(url=pulsar_server.url))
    info = await transport.connect()
    await transport.close()
    assert "ulsar" in info.version
    assert info.max_message_size >= 1024 * 1024


@pytest.mark.promise("PULSAR-46")
async def test_round_trip(transport: ClientTransport, topic: str) -> None:
    """Payload bytes, key, and properties of any text arrive as they were sent."""
    reader, producer = await subscribe(transport, topic), await produce(transport, topic)
    headers = {"trace": b"1", "empty": b"", "Gr\u00f6\u00dfe": "\u00fc\U0001f40d".encode()}
    sent = [
        Outgoing(topic, bytes(range(256)), headers, "k1"),
        Outgoing(topic, b"", {}, b"k2"),
        Outgoing(topic, b"plain", {}, ""),
    ]
    for message in sent:
        assert await publish(producer, message) == [None]

    full, empty, plain = await reader.read(3)
    assert (full.payload, full.key) == (bytes(range(256)), "k1")
    assert full.properties == {name: value.decode() for name, value in headers.items()}
    assert (empty.payload, empty.key, empty.properties) == (b"", "k2", {})
    assert (plain.payload, plain.key, plain.ordering_key) == (b"plain", None, None)
    assert full.identity.topic == topic
    assert len({message.identity for message in (full, empty, plain)}) == 3
    assert full.publish_time > 1_700_000_000
    assert full.event_time is None
    assert full.producer_name
    assert not full.chunked


@pytest.mark.promise("PULSAR-54")
async def test_acknowledged_messages_stay_away(transport: ClientTransport, topic: str) -> None:
    """What was acknowledged does not come to the next consumer, and what was not does."""
    reader, producer = await subscribe(transport, topic), await produce(transport, topic)
    for message in numbered(topic, 4):
        await publish(producer, message)

    for received in await reader.read(4):
        if received.payload != b"2":
            reader.consumer.ack(received)

    await reader.consumer.close()
    reader = await subscribe(transport, topic)
    assert [received.payload for received in await reader.read(1)] == [b"2"]
    assert await reader.quiet()


@pytest.mark.promise("PULSAR-54")
async def test_a_negative_acknowledgement_redelivers(transport: ClientTransport, topic: str) -> None:
    """A message that is negatively acknowledged comes again, with its count raised by one."""
    reader, producer = await subscribe(transport, topic), await produce(transport, topic)
    await publish(producer, Outgoing(topic, b"again", {}))
    (first,) = await reader.read(1)
    reader.consumer.nack(first)
    (second,) = await reader.read(1)
    assert (second.payload, second.identity) == (b"again", first.identity)
    assert second.redelivery_count == first.redelivery_count + 1
    reader.consumer.ack(second)


@pytest.mark.promise("PULSAR-40")
async def test_a_short_pull_wakes_once(transport: ClientTransport, topic: str) -> None:
    """A pull with room left is followed by exactly one wake, and pulling meanwhile loses nothing."""
    wakes: list[str] = []
    woken = Signal()

    def wake() -> None:
        wakes.append("wake")
        woken.wake_from_thread()

    spec = ConsumerSpec(
        topic=topic, subscription="s", type="Shared", initial_position="Earliest", receiver_queue_size=100
    )
    consumer = await transport.subscribe(spec, wake)
    producer = await produce(transport, topic)
    assert [consumer.pull(5) for _ in range(3)] == [[], [], []]
    await publish(producer, *numbered(topic, 4))
    with anyio.fail_after(20):
        await woken.wait()

    assert wakes == ["wake"]
    payloads = [message.payload for message in await Reader(consumer, woken).read(4)]
    assert payloads == [b"0", b"1", b"2", b"3"]


@pytest.mark.promise("PULSAR-45")
@pytest.mark.promise("PULSAR-49")
async def test_sends_that_overlap_share_entries(transport: ClientTransport, topic: str) -> None:
    """2,000 messages sent at once are all confirmed, arrive once and in order, many to an entry."""
    reader = await subscribe(transport, topic, queue=1000)
    producer = await produce(transport, topic, pending=2000)
    assert await publish(producer, *numbered(topic, 2000)) == [None] * 2000
    messages = await reader.read(2000)
    assert [int(message.payload) for message in messages] == list(range(2000))
    assert len({message.identity for message in messages}) == 2000
    assert len({message.identity[:3] for message in messages}) < 1000
    assert max(message.batch_size for message in messages) > 1


@pytest.mark.promise("PULSAR-45")
async def test_a_full_queue_refuses(transport: ClientTransport, topic: str) -> None:
    """More sends than may be pending are refused at once, each with one answer, and the rest confirmed."""
    producer = await produce(transport, topic, pending=10)
    answers = await publish(producer, *numbered(topic, 3000))
    refused = {getattr(error, "result", None) for error in answers if error is not None}
    assert refused <= {"ProducerQueueIsFull"}
    assert answers.count(None) >= 10


@pytest.mark.promise("PULSAR-50")
async def test_properties_that_are_not_text(
    transport: ClientTransport, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign producer's property that is not UTF-8 fails when properties are read, and nothing else does."""
    reader, producer = await subscribe(transport, topic), await produce(transport, topic)
    build = binding.new_message

    def foreign(payload: bytes, **_options: Any) -> Any:
        return build(payload, key=None, properties={"broken": b"\xff\xfe"})  # type: ignore[dict-item]  # on purpose

    monkeypatch.setattr("pystream_pulsar._client.producers.new_message", foreign)
    await publish(producer, Outgoing(topic, b"body", {}))
    monkeypatch.undo()
    await publish(producer, Outgoing(topic, b"next", {}))
    broken, following = await reader.read(2)
    assert broken.payload == b"body"
    assert broken.identity.topic == topic
    with pytest.raises(DecodeError, match="not UTF-8"):
        _ = broken.properties

    reader.consumer.ack(broken)
    assert following.properties == {}


@pytest.mark.promise("PULSAR-56")
async def test_after_the_close(pulsar_server: LiveServer, topic: str) -> None:
    """After the close a pull brings nothing and wakes, settlements and sends are refused, all by errors of ours."""
    transport = ClientTransport(ClientSettings(url=pulsar_server.url))
    await transport.connect()
    reader, producer = await subscribe(transport, topic), await produce(transport, topic)
    await publish(producer, Outgoing(topic, b"held", {}))
    (held,) = await reader.read(1)
    assert reader.consumer.pull(1) == []
    await transport.close()
    assert getattr(reader.consumer.failure, "result", None) == "AlreadyClosed"
    assert not await reader.quiet(0.05) or reader.consumer.pull(1) == []
    with pytest.raises(Exception, match="AlreadyClosed"):
        reader.consumer.ack(held)

    (error,) = await publish(producer, Outgoing(topic, b"late", {}))
    assert isinstance(error, PublishError)


@pytest.mark.promise("PULSAR-47")
async def test_a_name_the_client_refuses(transport: ClientTransport) -> None:
    """A topic name that is none ends in one sentence of ours with the client's result."""
    with pytest.raises(PublishError, match="InvalidTopicName"):
        await produce(transport, "persistent://public//nothing")
