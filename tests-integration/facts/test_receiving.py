"""How messages leave the client, and what an acknowledgement is: pulsar-client 3.13.0 on Apache Pulsar 4.0.7."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pulsar
import pulsar.asyncio
import pytest
from facts.support import BACK, Session, holds_within, is_quiet, receive
from live.admin import Admin
from live.choice import LiveServer

pytestmark = pytest.mark.gate


@pytest.mark.promise("PULSAR-154")
def test_a_request_is_answered_in_line(session: Session) -> None:
    """When a message waits in the client, an asynchronous receive calls back before it returns."""
    session.publish_entry([b"0", b"1"])
    consumer = session.subscribe()
    receive(consumer, 1)  # its neighbour has come with it
    answers: list[tuple[int, bytes]] = []
    consumer._consumer.receive_async(lambda _, message: answers.append((threading.get_ident(), message.data())))
    assert answers == [(threading.get_ident(), b"1")]


@pytest.mark.promise("PULSAR-154")
def test_a_request_stays_armed(session: Session) -> None:
    """A request without a message is kept, takes the next message, and a poll beside it gets nothing of it."""
    consumer = session.subscribe()
    arrived, taken = threading.Event(), []

    def callback(_result: Any, message: Any) -> None:
        taken.append(message.data())
        arrived.set()

    consumer._consumer.receive_async(callback)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(0)

    session.publish([b"0", b"1"])
    assert arrived.wait(BACK / 1000)
    assert (taken, consumer.receive(BACK).data()) == ([b"0"], b"1")


@pytest.mark.promise("PULSAR-155")
@pytest.mark.anyio
async def test_a_cancelled_receive_swallows_a_message(real_server: LiveServer, session: Session) -> None:
    """In the client's awaitable form a receive that was cancelled takes a later message with it."""
    client = pulsar.asyncio.Client(real_server.url)
    consumer = await client.subscribe(session.topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.receive(), 0.05)

    producer = await client.create_producer(session.topic)
    for payload in (b"0", b"1"):
        await producer.send(payload)

    message = await asyncio.wait_for(consumer.receive(), BACK / 1000)
    assert message.data() == b"1"
    await client.close()


@pytest.mark.promise("PULSAR-156")
def test_an_acknowledgement_waits_in_the_client(session: Session, admin: Admin) -> None:
    """An acknowledgement is noted in the client and sent within 100 ms: right after it the server knows nothing."""
    session.publish([b"x"] * 5)
    consumer, unaware = session.subscribe(), 0
    for left in (4, 3, 2, 1, 0):
        consumer.acknowledge(consumer.receive(BACK))
        unaware += backlog(session, admin) > left
        assert settles_at(left, session, admin)

    assert unaware, "the server knew of every acknowledgement at once"


@pytest.mark.promise("PULSAR-157")
def test_an_object_from_before_a_reconnect(session: Session, admin: Admin) -> None:
    """After a reconnect a batch comes again as new objects; one settled by its old object leaves the entry open."""
    session.publish_entry([b"0", b"1", b"2"])
    consumer = session.subscribe()
    before = receive(consumer, 3)
    admin.unload(session.topic)
    after = receive(consumer, 3)
    assert [message.data() for message in after] == [b"0", b"1", b"2"]
    for message in (before[0], *after[1:]):
        consumer.acknowledge(message)

    assert not settles_at(0, session, admin, seconds=1.5)
    consumer.acknowledge(after[0])
    assert settles_at(0, session, admin)


def backlog(session: Session, admin: Admin) -> int:
    """How many entries the server holds for the subscription."""
    return admin.subscription(session.topic, "s").backlog


def settles_at(entries: int, session: Session, admin: Admin, seconds: float = 10) -> bool:
    """Whether that many entries are left in time."""
    return holds_within(lambda: backlog(session, admin) == entries, seconds)


@pytest.mark.promise("PULSAR-158")
def test_a_property_that_is_no_text(session: Session) -> None:
    """One property that is not UTF-8 makes all properties of its message unreadable, and nothing else."""
    consumer = session.subscribe()
    producer = session.client.create_producer(session.topic)
    builder = pulsar._pulsar.MessageBuilder()
    builder.content(b"body")
    builder.property("fine", "text")
    builder.property("broken", b"\xff\xfe")
    producer._producer.send(builder.build())
    message = consumer.receive(BACK)
    with pytest.raises(UnicodeDecodeError):
        message.properties()

    assert message.data() == b"body"
    consumer.acknowledge(message)
    assert is_quiet(consumer, 200)
