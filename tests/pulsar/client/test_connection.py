"""`ClientTransport`: what is opened, and that everything opened is closed, in order and in time."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import anyio
import pytest
from pystream.errors import BrokerClosed, NotConnected, PublishError, SettlementError, SubscribeError
from pystream_pulsar._client import at_exit
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec, ServerInfo, Transport

from tests.pulsar.client.loopback import LoopbackServer
from tests.pulsar.client.scripted import BUSY, AlreadyClosed, Binding, Client, Message

pytestmark = pytest.mark.anyio

TOPIC = "persistent://public/default/orders"
CONSUMER = ConsumerSpec(
    topic=TOPIC, subscription="billing", type="Shared", initial_position="Earliest", receiver_queue_size=100
)
PRODUCER = ProducerSpec(topic=TOPIC, send_timeout=30, max_pending=1000)


def nothing() -> None:
    """A wake that wakes nobody."""


@pytest.fixture
async def transport(scripted: Binding, loopback: LoopbackServer) -> AsyncIterator[ClientTransport]:
    """A connected transport over the scripted binding."""
    transport = ClientTransport(ClientSettings(url=loopback.url, close_timeout=0.05))
    await transport.connect()
    yield transport
    await transport.close()


@pytest.fixture
def client(scripted: Binding, transport: ClientTransport) -> Client:
    """The one client of the transport."""
    (client,) = scripted.clients
    return client


@pytest.mark.promise("PULSAR-51")
async def test_connect_answers_who_the_server_is(scripted: Binding, loopback: LoopbackServer) -> None:
    """Connecting gives the server's version and limit, and makes one client for the whole URL."""
    transport: Transport = ClientTransport(ClientSettings(url=loopback.url))
    assert await transport.connect() == ServerInfo(version="a server 9.9", max_message_size=1000)
    assert [client.url for client in scripted.clients] == [loopback.url]
    await transport.close()


@pytest.mark.promise("PULSAR-54")
async def test_the_options_of_a_consumer(transport: ClientTransport, client: Client) -> None:
    """A consumer asks for negative acknowledgements after 100 ms, without dead letters or batch indices."""
    spec = ConsumerSpec(
        topic=TOPIC,
        subscription="billing",
        type="KeyShared",
        initial_position="Latest",
        receiver_queue_size=7,
        ack_timeout=12.5,
        consumer_name="me",
        properties={"a": "b"},
    )
    await transport.subscribe(spec, nothing)
    assert client.configurations[0].options == {
        "consumer_type": ("KeyShared",),
        "subscription_initial_position": ("Latest",),
        "receiver_queue_size": (7,),
        "negative_ack_redelivery_delay_ms": (100,),
        "batch_index_ack_enabled": (False,),
        "read_compacted": (False,),
        "unacked_messages_timeout_ms": (12500,),
        "consumer_name": ("me",),
        "property": ("a", "b"),
    }


@pytest.mark.promise("PULSAR-48")
async def test_refused_openings(transport: ClientTransport, client: Client) -> None:
    """A refused consumer or producer raises an error of ours with the client's result."""
    client.answer = BUSY
    with pytest.raises(SubscribeError, match="'billing'"):
        await transport.subscribe(CONSUMER, nothing)

    with pytest.raises(PublishError, match=TOPIC):
        await transport.produce(PRODUCER)


@pytest.mark.promise("PULSAR-55")
async def test_before_and_after(scripted: Binding, loopback: LoopbackServer) -> None:
    """A transport that is not connected yet, or closed, says so and asks the client nothing."""
    transport = ClientTransport(ClientSettings(url=loopback.url))
    with pytest.raises(NotConnected):
        await transport.subscribe(CONSUMER, nothing)

    await transport.connect()
    await transport.close()
    for call in (transport.subscribe(CONSUMER, nothing), transport.produce(PRODUCER), transport.connect()):
        with pytest.raises(BrokerClosed):
            await call

    assert scripted.clients[0].opened == []


@pytest.mark.promise("PULSAR-56")
async def test_the_order_of_closing(transport: ClientTransport, client: Client) -> None:
    """Closing closes consumers, then producers, then the client, each once, however often it is asked for."""
    client.log.clear()
    await transport.produce(PRODUCER)
    await transport.subscribe(CONSUMER, nothing)
    closed = await transport.subscribe(CONSUMER, nothing)
    for handle in client.opened:
        handle.log = client.log

    await closed.close()
    await transport.close()
    await transport.close()
    assert client.log == ["close consumer 3", "close consumer 2", "close producer 1", "close client"]


@pytest.mark.promise("PULSAR-57")
async def test_a_frozen_server_does_not_hold_up_the_close(transport: ClientTransport, client: Client) -> None:
    """On a server that answers no close, everything is asked to close and the call ends at its deadline."""
    await transport.produce(PRODUCER)
    await transport.subscribe(CONSUMER, nothing)
    for handle in (client, *client.opened):
        handle.frozen = True

    with anyio.fail_after(5):
        await transport.close()

    assert all(handle.closed for handle in (client, *client.opened))


@pytest.mark.promise("PULSAR-57")
async def test_a_cancelled_close_closes_all_the_same(transport: ClientTransport, client: Client) -> None:
    """A close whose caller is cancelled still asks everything to close, though nothing answers."""
    await transport.produce(PRODUCER)
    await transport.subscribe(CONSUMER, nothing)
    for handle in (client, *client.opened):
        handle.frozen = True

    with anyio.move_on_after(0):
        await transport.close()

    assert all(handle.closed for handle in (client, *client.opened))


@pytest.mark.promise("PULSAR-43")
@pytest.mark.parametrize("kind", ["consumer", "producer"])
async def test_a_cancelled_opening_leaves_nothing_open(transport: ClientTransport, client: Client, kind: str) -> None:
    """A consumer or producer that opens after its task was cancelled is closed at once."""
    client.held = True
    with anyio.move_on_after(0.01):
        await (transport.subscribe(CONSUMER, nothing) if kind == "consumer" else transport.produce(PRODUCER))

    (opened,) = client.opened
    assert not opened.closed
    client.opening[0]()
    assert opened.closed


@pytest.mark.promise("PULSAR-43")
async def test_an_opening_that_meets_the_close(transport: ClientTransport, client: Client) -> None:
    """A consumer that opens while the transport closes is closed, and its caller told."""
    client.held = True
    raised: list[BaseException] = []

    async def subscribe() -> None:
        try:
            await transport.subscribe(CONSUMER, nothing)
        except BrokerClosed as error:
            raised.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribe)
            await anyio.wait_all_tasks_blocked()
            await transport.close()
            client.opening[0]()

    assert len(raised) == 1
    assert client.opened[0].closed


@pytest.mark.promise("PULSAR-54")
async def test_a_consumer_settles_and_fails(transport: ClientTransport, client: Client) -> None:
    """Settlements go to the client at once; refused ones, and the end of the stream, are errors of ours."""
    wakes: list[str] = []
    consumer = await transport.subscribe(CONSUMER, lambda: wakes.append("wake"))
    (native,) = client.opened
    assert consumer.pull(4) == []
    native.arrive(Message(b"body"))
    (message,) = consumer.pull(4)
    assert (message.payload, wakes, consumer.failure) == (b"body", ["wake"], None)
    consumer.ack(message)
    consumer.nack(message)
    assert native.acknowledged == [message.native, message.native]

    native.refused = AlreadyClosed()
    for settle in (consumer.ack, consumer.nack):
        with pytest.raises(SettlementError, match=r"'billing'.*AlreadyClosed"):
            settle(message)

    native.end()
    assert "'billing'" in str(consumer.failure)
    assert consumer.pull(4) == []


@pytest.mark.promise("PULSAR-54")
async def test_unsubscribe_comes_first(transport: ClientTransport, client: Client) -> None:
    """A consumer closed with `unsubscribe` deletes its subscription before it closes, once."""
    consumer = await transport.subscribe(CONSUMER, nothing)
    (native,) = client.opened
    await consumer.close(unsubscribe=True)
    await consumer.close(unsubscribe=True)
    assert native.log[-2:] == ["unsubscribe consumer 1", "close consumer 1"]
    assert native.log.count("unsubscribe consumer 1") == 1


@pytest.mark.promise("PULSAR-58")
async def test_exit_closes_what_is_open(scripted: Binding, loopback: LoopbackServer) -> None:
    """An exit closes each client that nobody has closed, and no other."""
    forgotten, tidy = (ClientTransport(ClientSettings(url=loopback.url)) for _ in range(2))
    for transport in (forgotten, tidy):
        await transport.connect()

    await tidy.close()
    at_exit.close_all()
    at_exit.close_all()
    assert [client.log for client in scripted.clients] == [["close client"]] * 2


@pytest.mark.promise("PULSAR-58")
async def test_exit_does_not_wait_for_ever(transport: ClientTransport, client: Client) -> None:
    """An exit gives a frozen server no longer than the bound, whether the close was begun before or not."""
    client.frozen = True
    at_exit.close_all()
    at_exit.close_all()
    assert client.log == ["close client"]


@pytest.mark.promise("PULSAR-58")
async def test_exit_waits_until_the_callback_is_gone(transport: ClientTransport, client: Client) -> None:
    """An exit right after a close waits for the client to let go of the callback it has called."""
    client.keeps = True
    await transport.close()
    assert len(client.unanswered) == 1
    leaving = threading.Thread(target=at_exit.close_all)
    (guard,) = at_exit._kept
    guard.timeout = 20
    leaving.start()
    leaving.join(0.05)
    assert leaving.is_alive()
    client.unanswered.clear()
    leaving.join(10)
    assert not leaving.is_alive()
