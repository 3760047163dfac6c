"""Trap 13: a copy of a message in hand is adopted, not handled."""

from __future__ import annotations

import pytest
from pystream_pulsar import PulsarSubscription, SubscriptionType

from tests.pulsar.scripted import Raw, batch, open_stream

pytestmark = pytest.mark.anyio


@pytest.mark.promise("PULSAR-22")
async def test_the_newest_copy_is_settled() -> None:
    """A copy that a reconnect brings is not handled; the delivery in hand settles the copy in its stead."""
    stream = await open_stream()
    old, new = Raw(b"x", entry=1), Raw(b"x", entry=1, redelivery_count=1)
    (message,) = stream.bring(old)
    assert stream.bring(new) == []
    await message.ack()
    assert stream.consumer.acked == [new]
    assert stream.bring(Raw(b"x", entry=1)) != []


@pytest.mark.promise("PULSAR-22")
async def test_the_count_stays_that_of_the_handled_copy() -> None:
    """Adopting a copy does not change the count that the handler may have read."""
    stream = await open_stream()
    (message,) = stream.bring(Raw(b"x", entry=1))
    stream.bring(Raw(b"x", entry=1, redelivery_count=4))
    assert message.delivery_count == 1


@pytest.mark.promise("PULSAR-22")
async def test_held_messages_are_in_hand() -> None:
    """A copy of a message that is held for a delay is not handled before the delay is over."""
    stream = await open_stream()
    (message,) = stream.bring(Raw(b"x", entry=1))
    await message.retry_after(5)
    new = Raw(b"x", entry=1)
    assert stream.bring(new) == []
    stream.clock.advance(5)
    assert stream.consumer.nacked == [new]
    assert len(stream.bring(Raw(b"x", entry=1, redelivery_count=1))) == 1


@pytest.mark.promise("PULSAR-22")
async def test_a_message_waiting_for_its_burst_is_in_hand() -> None:
    """A copy that comes before the negative acknowledgement was sent is not handled."""
    stream = await open_stream()
    first, second = stream.bring(Raw(b"a", entry=1), Raw(b"b", entry=2))
    await first.requeue()
    stream.clock.advance(0)
    await second.requeue()
    assert stream.bring(Raw(b"b", entry=2)) == []


@pytest.mark.promise("PULSAR-22")
async def test_equal_payloads_are_told_apart() -> None:
    """Different messages with one payload are all handled, each adopts its own copy, each is settled."""
    stream = await open_stream()
    old = [Raw(b"same", entry=1), Raw(b"same", entry=2), *batch(0, 1, entry=3)]
    for raw in old:
        raw.payload = b"same"

    messages = stream.bring(*old)
    assert len(messages) == 4
    copy = Raw(b"same", entry=2)
    assert stream.bring(copy) == []
    for message in reversed(messages):
        await message.ack()

    assert stream.consumer.acked == [old[3], old[2], copy, old[0]]


@pytest.mark.promise("PULSAR-22")
@pytest.mark.parametrize("type_", list(SubscriptionType))
async def test_non_persistent(type_: SubscriptionType) -> None:
    """On a non-persistent topic, where all identities are equal, equal payloads are different messages."""
    topic = "non-persistent://public/default/orders"
    stream = await open_stream(PulsarSubscription(topic, "billing", type=type_))
    raws = [Raw(b"same", topic=topic, ledger=0) for _ in range(3)]
    messages = stream.bring(*raws)
    assert len(messages) == 3
    for message in messages:
        await message.ack()

    assert stream.consumer.acked == raws
