"""Publishing: producers opened once, bounded sends, any loop and thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pystream.errors import BrokerClosed, ConfigurationError, PublishError
from pystream.protocols import Outgoing, Publisher
from pystream_pulsar import (
    ConnectedPulsarBroker,
    PulsarPublisher,
    PulsarPublishError,
    PulsarPublishPolicy,
    PulsarTopic,
)
from pystream_pulsar.transport import ProducerSpec

from tests.pulsar.scripted import ManualClock, ScriptedTransport

pytestmark = pytest.mark.anyio


def connect() -> tuple[ScriptedTransport, ConnectedPulsarBroker]:
    """A connection over a scripted transport."""
    transport = ScriptedTransport()
    return transport, ConnectedPulsarBroker(transport, clock=ManualClock())


def order(topic: str = "orders", payload: bytes = b"x") -> Outgoing:
    """A message."""
    return Outgoing(topic, payload, {"h": b"v"}, key="k")


async def until(condition: Callable[[], object]) -> None:
    """Let others run until the condition holds."""
    with anyio.fail_after(10):
        while not condition():
            await checkpoint()


class Held:
    """Holds the opening of some topics until they are released."""

    def __init__(self, transport: ScriptedTransport, *topics: str) -> None:
        self.gate = anyio.Event()
        self.asked: list[str] = []
        self._topics = {PulsarTopic(topic).full_name for topic in topics}
        transport.opening = self

    def __call__(self, spec: ProducerSpec) -> Any:
        self.asked.append(spec.topic)
        return self.gate.wait() if spec.topic in self._topics else None


@pytest.mark.promise("PULSAR-26")
async def test_returns_when_confirmed() -> None:
    """A publish hands the message over as it is and returns once it is confirmed."""
    transport, connection = connect()
    publisher: Publisher = connection.publisher()
    outgoing, done = order(), anyio.Event()

    async def publish() -> None:
        await publisher.publish(outgoing)
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(publish)
        await until(lambda: transport.producers and transport.producers[0].sent)
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        transport.producers[0].confirm()

    assert transport.producers[0].sent[0][0] is outgoing
    assert transport.producers[0].spec == ProducerSpec(
        topic="persistent://public/default/orders", send_timeout=30.0, max_pending=1000
    )


@pytest.mark.promise("PULSAR-26")
@pytest.mark.parametrize("in_line", [True, False], ids=["in-line", "thread"])
async def test_a_failed_send_raises_its_error(in_line: bool) -> None:
    """A message that the server does not confirm raises the transport's error, whichever thread brings it."""
    transport, connection = connect()
    refusal = PulsarPublishError("too big", result="MessageTooBig")
    if in_line:
        transport.confirms_in_line = True
        transport.answer = refusal

    async def confirm() -> None:
        await until(lambda: transport.producers and transport.producers[0].sent)
        if not in_line:
            await anyio.to_thread.run_sync(lambda: transport.producers[0].confirm(refusal))

    async with anyio.create_task_group() as group:
        group.start_soon(confirm)
        with pytest.raises(PublishError, match="too big"):
            await connection.publisher().publish(order())


@pytest.mark.promise("PULSAR-27")
async def test_concurrent_first_publishes_open_one_producer() -> None:
    """Many first publishes to one topic, under several spellings, open one producer, and keep their order."""
    transport, connection = connect()
    held = Held(transport, "orders")
    spellings = ["orders", "public/default/orders", "persistent://public/default/orders"]
    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(connection.publisher().publish, order(spellings[number % 3], b"%d" % number))
            await anyio.wait_all_tasks_blocked()

        transport.confirms_in_line = True
        held.gate.set()

    assert held.asked == ["persistent://public/default/orders"]
    assert [outgoing.payload for outgoing, _ in transport.producers[0].sent] == [b"%d" % n for n in range(30)]


@pytest.mark.promise("PULSAR-27")
async def test_topics_do_not_wait_for_each_other() -> None:
    """A topic whose producer takes long to open holds up no publish to another."""
    transport, connection = connect()
    transport.confirms_in_line = True
    held = Held(transport, "slow")
    async with anyio.create_task_group() as group:
        group.start_soon(connection.publisher().publish, order("slow"))
        await until(lambda: held.asked)
        with anyio.fail_after(10):
            await connection.publisher().publish(order("quick"))

        held.gate.set()


@pytest.mark.promise("PULSAR-27")
async def test_a_failed_open_is_not_kept() -> None:
    """A producer that cannot be opened fails everyone who waits for it, and the next publish tries again."""
    transport, connection = connect()
    transport.confirms_in_line = True
    transport.refuses = PulsarPublishError("no such topic", result="TopicNotFound")
    held = Held(transport, "orders")
    failed: list[BaseException] = []

    async def publish() -> None:
        try:
            await connection.publisher().publish(order())
        except PublishError as error:
            failed.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(publish)

        await anyio.wait_all_tasks_blocked()
        held.gate.set()

    assert [str(error) for error in failed] == ["no such topic"] * 3
    transport.refuses = None
    await connection.publisher().publish(order())
    assert len(held.asked) == 2


@pytest.mark.promise("PULSAR-27")
async def test_a_cancelled_opener_is_replaced() -> None:
    """When the publish that opens the producer is cancelled, another one that waits opens it."""
    transport, connection = connect()
    transport.confirms_in_line = True
    held = Held(transport, "orders")
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await connection.publisher().publish(order(payload=b"cancelled"))

    async with anyio.create_task_group() as group:
        group.start_soon(cancelled)
        await until(lambda: held.asked)
        group.start_soon(connection.publisher().publish, order(payload=b"kept"))
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await until(lambda: len(held.asked) == 2)
        held.gate.set()

    assert [outgoing.payload for outgoing, _ in transport.producers[0].sent] == [b"kept"]


@pytest.mark.promise("PULSAR-27")
async def test_a_cancelled_lone_opener_leaves_nothing() -> None:
    """After a lone first publish was cancelled, the next one opens the producer afresh."""
    transport, connection = connect()
    transport.confirms_in_line = True
    held = Held(transport, "orders")
    with anyio.move_on_after(0.01):
        await connection.publisher().publish(order())

    held.gate.set()
    with anyio.fail_after(10):
        await connection.publisher().publish(order())

    assert len(held.asked) == 2


@pytest.mark.promise("PULSAR-28")
async def test_pending_sends_are_bounded() -> None:
    """No more than `max_pending` messages are with the client at once; the others follow, in order."""
    transport, connection = connect()
    publisher = connection.publisher(PulsarPublishPolicy(max_pending=3))
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(publisher.publish, order(payload=b"%d" % number))
            await anyio.wait_all_tasks_blocked()

        producer = transport.producers[0]
        assert len(producer.sent) == 3
        for _ in range(10):
            producer.confirm()

    assert producer.most_pending == 3
    assert [outgoing.payload for outgoing, _ in producer.sent] == [b"%d" % number for number in range(10)]


@pytest.mark.promise("PULSAR-28")
async def test_a_cancelled_publish_gives_up_its_turn() -> None:
    """A publish that is cancelled while it waits for its turn is never sent."""
    transport, connection = connect()
    publisher = connection.publisher(PulsarPublishPolicy(max_pending=1))
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await publisher.publish(order(payload=b"cancelled"))

    async with anyio.create_task_group() as group:
        group.start_soon(publisher.publish, order(payload=b"first"))
        await anyio.wait_all_tasks_blocked()
        group.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        group.start_soon(publisher.publish, order(payload=b"last"))
        await anyio.wait_all_tasks_blocked()
        transport.producers[0].confirm()
        await until(lambda: len(transport.producers[0].sent) == 2)
        transport.producers[0].confirm()

    assert [outgoing.payload for outgoing, _ in transport.producers[0].sent] == [b"first", b"last"]


@pytest.mark.promise("PULSAR-29")
async def test_publishing_from_another_loop() -> None:
    """A publish from another thread's loop, the first one included, works and outlives that loop."""
    transport, connection = connect()
    transport.confirms_in_line = True
    publisher = connection.publisher()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            anyio.run(publisher.publish, order(payload=b"there"))
        except BaseException as error:
            failures.append(error)

    for _ in range(2):
        thread = threading.Thread(target=run)
        thread.start()
        with anyio.fail_after(10):
            await anyio.to_thread.run_sync(thread.join)

    await publisher.publish(order(payload=b"here"))
    assert failures == []
    assert len(transport.producers) == 1
    assert [outgoing.payload for outgoing, _ in transport.producers[0].sent] == [b"there", b"there", b"here"]


@pytest.mark.promise("PULSAR-29")
def test_the_loop_is_gone() -> None:
    """A publish from a thread after the app's loop has ended raises instead of waiting for ever."""

    async def leave() -> PulsarPublisher:
        return connect()[1].publisher()

    publisher = anyio.run(leave)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            anyio.run(publisher.publish, order())
        except BrokerClosed as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert "event loop of this Pulsar connection is closed" in str(raised[0])


@pytest.mark.promise("PULSAR-30")
async def test_a_closed_connection_fails_publishes() -> None:
    """Closing fails the publishes that were not confirmed and every later one; nothing hangs."""
    transport, connection = connect()
    publisher = connection.publisher(PulsarPublishPolicy(max_pending=1))
    raised: list[BaseException] = []

    async def publish() -> None:
        try:
            await publisher.publish(order())
        except BrokerClosed as error:
            raised.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(publish)

        await anyio.wait_all_tasks_blocked()
        await connection.close()
        await connection.close()

    await publish()
    assert [str(error) for error in raised] == ["the connection to pulsar was closed"] * 4
    with pytest.raises(BrokerClosed):
        await connection.publisher(PulsarPublishPolicy(send_timeout=1)).publish(order())

    transport.producers[0].confirm()  # a confirmation that comes too late disturbs nobody


@pytest.mark.promise("PULSAR-31")
async def test_refusals() -> None:
    """A destination that is no topic, options, and a foreign policy are refused before anything is opened."""
    transport, connection = connect()
    publisher = connection.publisher()
    with pytest.raises(ConfigurationError, match="'a/b' is no name of a Pulsar topic"):
        await publisher.publish(order("a/b"))

    with pytest.raises(
        ConfigurationError, match="a publish to Pulsar has no options yet, and dict was given for orders"
    ):
        await publisher.publish(order(), {})

    with pytest.raises(ConfigurationError, match="a Pulsar publisher takes a PulsarPublishPolicy, not str"):
        connection.publisher("fast")  # type: ignore[arg-type]  # that is the point

    assert transport.producers == []


POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"send_timeout": 0}, "PulsarPublishPolicy(send_timeout=0): give a number of seconds above 0"),
    ({"send_timeout": None}, "PulsarPublishPolicy(send_timeout=None): give a number of seconds above 0"),
    ({"max_pending": 0}, "PulsarPublishPolicy(max_pending=0): give a whole number of 1 or more"),
    ({"max_pending": 1.5}, "PulsarPublishPolicy(max_pending=1.5): give a whole number of 1 or more"),
]
"""Options of a policy, and the whole text of the refusal."""


@pytest.mark.promise("PULSAR-31")
@pytest.mark.parametrize(("options", "message"), POLICIES)
def test_policy_refusals(options: dict[str, Any], message: str) -> None:
    """A policy with a value out of its range is refused at construction."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarPublishPolicy(**options)

    assert str(caught.value) == message
    assert PulsarPublishPolicy().options is None
