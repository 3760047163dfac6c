"""Connecting, opening and publishing: pulsar-client 3.13.0 on Apache Pulsar 4.0.7."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import pulsar
import pytest
from facts.support import BACK, Session, receive
from live.choice import LiveServer
from live.real import RealPulsar
from pystream_pulsar._client.probe import addresses, probe

pytestmark = pytest.mark.gate

VERSIONS = ("3.13.0", "Pulsar Server4.0.7")


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-159")
async def test_the_opening_frame_tells_who_the_server_is(real_server: LiveServer) -> None:
    """One CONNECT frame is answered with the version and the largest message; the facts here are of these versions."""
    info = await probe(addresses(real_server.url), timeout=10)
    assert (pulsar.__version__, info.version) == VERSIONS
    assert info.max_message_size == 5 * 1024 * 1024


@pytest.mark.promise("PULSAR-160")
def test_the_client_does_not_dial_by_itself() -> None:
    """A client for an address where nobody listens is made without an error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        pulsar.Client(f"pulsar://127.0.0.1:{taken.getsockname()[1]}", logger=logger).close()


@pytest.mark.promise("PULSAR-160")
def test_the_client_does_not_say_why_it_was_refused(secured: RealPulsar) -> None:
    """A client without the token that the server asks for tries until the operation's timeout, and says no more."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(secured.url, operation_timeout_seconds=2, logger=logger)
    with pytest.raises(pulsar.PulsarException) as refused:
        client.create_producer("refused")

    client.close()
    assert type(refused.value).__name__ in {"Timeout", "ConnectError"}


@pytest.mark.promise("PULSAR-161")
def test_a_subscription_of_another_type(session: Session) -> None:
    """Joining a subscription with another type is `ConsumerBusy`, the same as a second EXCLUSIVE consumer."""
    shared = session.subscribe(pulsar.ConsumerType.Shared)
    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.KeyShared, pulsar.ConsumerType.Failover):
        with pytest.raises(pulsar.ConsumerBusy):
            session.subscribe(kind)

    shared.close()
    session.subscribe(pulsar.ConsumerType.Exclusive)
    began = time.monotonic()
    with pytest.raises(pulsar.ConsumerBusy):
        session.subscribe(pulsar.ConsumerType.Exclusive)

    assert time.monotonic() - began < 5, "the client tries again by itself now"


@pytest.mark.promise("PULSAR-162")
def test_a_missing_namespace_is_a_missing_topic(session: Session) -> None:
    """A namespace or a tenant that does not exist is told as `TopicNotFound`."""
    for topic in ("public/nowhere/orders", "nobody/default/orders"):
        with pytest.raises(pulsar.TopicNotFound):
            session.client.create_producer(topic)


@pytest.mark.promise("PULSAR-163")
def test_a_batching_delay_of_zero(session: Session) -> None:
    """With a delay of zero a message alone is confirmed at once, and sends that overlap share entries, by key."""
    consumer = session.subscribe()
    producer = session.client.create_producer(
        session.topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=0,
        batching_type=pulsar.BatchingType.KeyBased,
    )
    producer.send(b"alone", partition_key="a")
    confirmed = threading.Semaphore(0)
    for number in range(1000):
        producer.send_async(b"x", lambda *_: confirmed.release(), partition_key="ab"[number % 2])

    assert all(confirmed.acquire(timeout=20) for _ in range(1000))
    messages = receive(consumer, 1001)
    keys: dict[int, set[str]] = {}
    for message in messages:
        keys.setdefault(message.message_id().entry_id(), set()).add(message.partition_key())

    assert len(keys) < 900
    assert all(len(together) == 1 for together in keys.values())


@pytest.mark.promise("PULSAR-164")
def test_the_least_acknowledgement_timeout(session: Session) -> None:
    """The client takes an acknowledgement timeout of ten seconds and refuses a shorter one."""
    session.subscribe(unacked_messages_timeout_ms=10_000).close()
    with pytest.raises(Exception, match=r"(?i)unacked|ack|timeout|greater"):
        session.subscribe(unacked_messages_timeout_ms=9_999)


@pytest.mark.promise("PULSAR-165")
def test_a_new_subscription_begins_with_the_next_message(session: Session) -> None:
    """A subscription made at LATEST misses what was published before it existed; one at EARLIEST does not."""
    session.publish([b"before"])
    latest: Any = session.client.subscribe(session.topic, "latest", consumer_type=pulsar.ConsumerType.Shared)
    earliest = session.subscribe()
    session.publish([b"after"])
    assert latest.receive(BACK).data() == b"after"
    assert [message.data() for message in receive(earliest, 2)] == [b"before", b"after"]
