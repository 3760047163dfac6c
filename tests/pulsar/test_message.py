"""`PulsarMessage`: what a handler and the runtime see of one delivery."""

from __future__ import annotations

import logging

import pytest
from pystream.errors import DecodeError, SettlementError, SettlementUnsupported
from pystream.protocols import Delivery, RetryAfter
from pystream_pulsar import PulsarMessage, PulsarPosition, PulsarSubscription, SubscriptionType

from tests.pulsar.scripted import TOPIC, Raw, Stream, batch, open_stream

pytestmark = pytest.mark.anyio


async def deliver(raw: Raw, source: PulsarSubscription | None = None) -> tuple[Stream, PulsarMessage]:
    """This message in a handler's hands."""
    stream = await open_stream(source)
    (message,) = stream.bring(raw)
    return stream, message


@pytest.mark.promise("PULSAR-7")
async def test_attributes() -> None:
    """A message shows what Pulsar knows of it, with its topic's full name."""
    raw = Raw(
        b"body",
        entry=9,
        redelivery_count=2,
        key="k",
        props={"a": "ä"},
        event_time=3.5,
        topic=f"{TOPIC}-partition-4",
    )
    _, message = await deliver(raw)
    delivery: Delivery = message
    assert (delivery.payload, delivery.key, delivery.lane_key) == (b"body", "k", "k")
    assert delivery.id == "7:9:4"
    assert delivery.destination == message.topic == f"{TOPIC}-partition-4"
    assert delivery.headers == {"a": "ä".encode()}
    assert message.properties == {"a": "ä"}
    assert message.position == PulsarPosition(f"{TOPIC}-partition-4", b"position")
    assert (delivery.delivery_count, delivery.decode_error, delivery.retry) == (3, None, None)
    assert (message.publish_time, message.event_time, message.producer_name) == (1.0, 3.5, "producer")
    assert isinstance(message, RetryAfter)


@pytest.mark.promise("PULSAR-7")
async def test_id_within_a_batch() -> None:
    """The id of a batched message ends with its index, and no repr shows the payload."""
    _, message = await deliver(batch(2)[0])
    assert message.id == "7:1:-1:2"
    assert repr(message) == f"<PulsarMessage 7:1:-1:2 of {TOPIC}>"


@pytest.mark.promise("PULSAR-7")
@pytest.mark.parametrize(
    ("key", "ordering_key", "lane_key"),
    [("k", "o", "o"), ("k", None, "k"), ("", "", None), (None, None, None)],
)
async def test_keys(key: str | None, ordering_key: str | None, lane_key: str | None) -> None:
    """Lanes go by the ordering key, else by the key; an empty key is none."""
    _, message = await deliver(Raw(key=key, ordering_key=ordering_key))
    assert (message.key, message.ordering_key, message.lane_key) == (key or None, ordering_key or None, lane_key)


@pytest.mark.promise("PULSAR-8")
async def test_unreadable_properties() -> None:
    """Properties that are not UTF-8 fail when they are read, and at no other time (trap 15)."""
    stream, message = await deliver(Raw(b"body", props=None))
    assert message.payload == b"body"
    for read in (lambda: message.headers, lambda: message.properties):
        with pytest.raises(DecodeError):
            read()

    await message.ack()
    assert len(stream.consumer.acked) == 1


@pytest.mark.promise("PULSAR-4")
async def test_a_chunked_message_is_retried_in_place() -> None:
    """A chunked message says so, and refuses a negative acknowledgement, which would do nothing (trap 5)."""
    stream, message = await deliver(Raw(chunked=True))
    assert message.retry == "in_place"
    with pytest.raises(SettlementUnsupported, match="came in chunks"):
        await message.requeue()

    await message.ack()
    assert len(stream.consumer.acked) == 1


@pytest.mark.promise("PULSAR-4")
@pytest.mark.parametrize("type_", [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER])
async def test_in_place_sources_never_ask_back(type_: SubscriptionType) -> None:
    """On EXCLUSIVE and FAILOVER a requeue is refused, not pretended: it would bring back everything (trap 5)."""
    stream, message = await deliver(Raw(), PulsarSubscription("orders", "billing", type=type_))
    for settlement in (message.requeue(), message.retry_after(1)):
        with pytest.raises(SettlementUnsupported, match=f"of type {type_.name} .* are retried in place"):
            await settlement

    stream.clock.advance(10)
    assert stream.consumer.nacked == []
    await message.ack()


@pytest.mark.promise("PULSAR-9")
@pytest.mark.parametrize("first", ["ack", "reject", "requeue", "release"])
@pytest.mark.parametrize("second", ["ack", "reject", "requeue"])
@pytest.mark.parametrize("equal", [False, True], ids=["alone", "equal-payloads"])
async def test_settled_once(first: str, second: str, equal: bool) -> None:
    """A second settlement raises, and sends nothing."""
    stream = await open_stream()
    message, _ = stream.bring(Raw(b"x", entry=1), Raw(b"x" if equal else b"y", entry=2))
    result = getattr(message, first)()
    if result is not None:
        await result

    with pytest.raises(SettlementError, match=r"was (settled|released) before"):
        await getattr(message, second)()

    stream.clock.advance(1)
    assert len(stream.consumer.acked) + len(stream.consumer.nacked) == (first != "release")


@pytest.mark.promise("PULSAR-10")
async def test_drop(caplog: pytest.LogCaptureFixture) -> None:
    """A dropped message is acknowledged and logged, without its payload."""
    caplog.set_level(logging.DEBUG, "pystream_pulsar")
    stream, message = await deliver(Raw(b"secret", entry=5))
    await message.reject()
    assert [raw.entry for raw in stream.consumer.acked] == [5]
    assert "dropped message 7:5:-1" in caplog.text
    assert "secret" not in caplog.text
