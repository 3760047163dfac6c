"""What a negative acknowledgement does: pulsar-client 3.13.0 on Apache Pulsar 4.0.7."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pulsar
import pytest
from facts.support import Session, is_quiet, receive
from live.admin import Admin

pytestmark = pytest.mark.gate

ONE_READER = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover]
PACE = 0.02  # seconds between two requests
ATTEMPTS = 5  # of a fact that a busy machine may hide


def bodies(messages: list[Any]) -> list[bytes]:
    """Their payloads, sorted."""
    return sorted(message.data() for message in messages)


@pytest.mark.promise("PULSAR-150")
def test_requests_that_follow_closely_redeliver_nothing(session: Session) -> None:
    """With a delay of 100 ms, requests 20 ms apart bring nothing back until they pause; then everything comes."""
    count = 40
    session.publish(str(number).encode() for number in range(count))
    consumer = session.subscribe()
    for _ in range(ATTEMPTS):
        messages = receive(consumer, count)
        moments = []
        for message in messages:
            moments.append(time.monotonic())
            consumer.negative_acknowledge(message)
            time.sleep(PACE)

        punctual = max(later - earlier for earlier, later in pairwise(moments)) < 2 * PACE
        early = not is_quiet(consumer, 1) if punctual else False
        assert not early
        if punctual:
            break

    else:
        pytest.fail("the machine was too busy to send requests 20 ms apart")

    assert len(bodies(receive(consumer, count))) == count


@pytest.mark.promise("PULSAR-151")
def test_the_whole_entry_comes_back(session: Session) -> None:
    """Of an entry of four messages three are acknowledged and one is not: all four come, each counted once more."""
    session.publish_entry([b"0", b"1", b"2", b"3"])
    consumer = session.subscribe()
    messages = receive(consumer, 4)
    assert {message.message_id().entry_id() for message in messages} == {0}
    for message in messages[:3]:
        consumer.acknowledge(message)

    consumer.negative_acknowledge(messages[3])
    again = receive(consumer, 4)
    assert [message.data() for message in again] == [b"0", b"1", b"2", b"3"]
    assert [message.redelivery_count() for message in again] == [1] * 4
    assert is_quiet(consumer)


@pytest.mark.promise("PULSAR-152")
def test_the_count_stays_while_a_sibling_is_there(session: Session) -> None:
    """The count grows by one for each request, and is unchanged when the consumer closes and a sibling remains."""
    session.publish([b"x"])
    consumer = session.subscribe()
    for count in range(3):
        (message,) = receive(consumer, 1)
        assert message.redelivery_count() == count
        if count < 2:
            consumer.negative_acknowledge(message)

    sibling = session.subscribe()
    consumer.close()
    (message,) = receive(sibling, 1)
    assert message.redelivery_count() == 2


@pytest.mark.promise("PULSAR-152")
def test_the_count_is_zero_after_the_last_consumer(session: Session) -> None:
    """When the last consumer leaves, the next one sees a count of zero."""
    session.publish([b"x"])
    consumer = session.subscribe()
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    assert receive(consumer, 1)[0].redelivery_count() == 1
    consumer.close()
    (message,) = receive(session.subscribe(), 1)
    assert (message.data(), message.redelivery_count()) == (b"x", 0)


@pytest.mark.promise("PULSAR-152")
def test_the_count_is_zero_after_an_unload(session: Session, admin: Admin) -> None:
    """When the server lets go of the topic, what was in hand comes again, with a count of zero."""
    session.publish([b"x"])
    consumer = session.subscribe()
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    assert receive(consumer, 1)[0].redelivery_count() == 1
    admin.unload(session.topic)
    (message,) = receive(consumer, 1)
    assert (message.data(), message.redelivery_count()) == (b"x", 0)


@pytest.mark.promise("PULSAR-153")
@pytest.mark.parametrize("kind", ONE_READER, ids=["EXCLUSIVE", "FAILOVER"])
def test_one_reader_gets_everything_again(session: Session, kind: Any) -> None:
    """On EXCLUSIVE and FAILOVER a request for one message brings all that are unacknowledged, counted as zero."""
    payloads = [b"0", b"1", b"2", b"3", b"4"]
    session.publish(payloads)
    consumer = session.subscribe(kind)
    messages = receive(consumer, 5)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[3])
    again = receive(consumer, 4)
    assert [message.data() for message in again] == payloads[1:]
    assert [message.redelivery_count() for message in again] == [0] * 4


@pytest.mark.promise("PULSAR-153")
def test_a_topic_that_is_not_stored_gives_nothing_back(session: Session) -> None:
    """On a non-persistent topic a request does nothing, and every message has the same identity."""
    session.topic = session.topic.replace("persistent://", "non-persistent://")
    consumer = session.subscribe()
    session.publish([b"0", b"1"])
    messages = receive(consumer, 2)
    places = {(message.message_id().ledger_id(), message.message_id().entry_id()) for message in messages}
    assert places == {(0, 0)}
    consumer.negative_acknowledge(messages[0])
    assert is_quiet(consumer)
