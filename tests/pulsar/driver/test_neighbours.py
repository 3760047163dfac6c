"""Trap 4: settled neighbours that come back with an entry are acknowledged unseen."""

from __future__ import annotations

import pytest

from pystream_pulsar import PulsarMessage
from tests.pulsar.scripted import Raw, Stream, batch, open_stream

pytestmark = pytest.mark.anyio


async def taken(stream: Stream, *raws: Raw) -> list[PulsarMessage]:
    stream.consumer.feed(*raws)
    return [message for message in stream.take_all() if isinstance(message, PulsarMessage)]


def indices(messages: list[PulsarMessage]) -> list[int]:
    return [message.identity.index for message in messages]


def session_is_fast(stream: Stream) -> bool:
    return stream.driver._session.fast


@pytest.mark.promise("PULSAR-23")
async def test_settled_neighbours_are_not_handled_again() -> None:
    """Three of four acknowledged and one asked back: of the four copies one is handled, three are acknowledged."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1, 2, 3))
    for message in messages[1:]:
        await message.ack()

    await messages[0].requeue()
    stream.clock.advance(1)
    copies = batch(0, 1, 2, 3, count=1)
    (again,) = await taken(stream, *copies)
    assert again.identity.index == 0
    assert stream.consumer.acked[3:] == copies[1:]
    await again.ack()
    assert stream.consumer.acked[6:] == copies[:1]


@pytest.mark.promise("PULSAR-23")
async def test_neighbours_settled_long_before() -> None:
    """It makes no difference how much was pulled and settled between the neighbours and the retry."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1, 2, 3), *(Raw(b"%d" % n, entry=n) for n in range(100, 400)))
    for message in messages[1:]:
        await message.ack()

    await messages[0].retry_after(50)
    await taken(stream, *(Raw(b"%d" % n, entry=n) for n in range(1000, 4000)))
    stream.clock.advance(51)
    assert indices(await taken(stream, *batch(0, 1, 2, 3, count=1))) == [0]


@pytest.mark.promise("PULSAR-23")
async def test_neighbours_settled_afterwards() -> None:
    """A neighbour settled after the entry was asked back is not handled again either."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1, 2, 3))
    await messages[0].requeue()
    stream.clock.advance(1)
    await messages[1].ack()
    assert indices(await taken(stream, *batch(0, 1, 2, 3, count=1))) == [0]
    await messages[2].ack()
    assert indices(await taken(stream, *batch(0, 1, 2, 3, count=2))) == []


@pytest.mark.promise("PULSAR-23")
async def test_a_batch_that_is_pulled_in_parts() -> None:
    """While the rest of a batch has still to be pulled, a retry of its first message does not harm it."""
    stream = await open_stream()
    stream.consumer.feed(*batch(*range(40), size=40))
    first = stream.driver.take()
    assert first is not None
    await first.retry_after(30)
    rest = [message for message in stream.take_all() if isinstance(message, PulsarMessage)]
    assert indices(rest) == list(range(1, 40))
    for message in rest:
        await message.ack()

    await taken(stream, *(Raw(b"%d" % n, entry=n) for n in range(1000, 3000)))
    stream.clock.advance(31)
    assert indices(await taken(stream, *batch(*range(40), size=40, count=1))) == [0]


@pytest.mark.promise("PULSAR-24")
async def test_what_was_never_received_is_handled() -> None:
    """After a reconnect in the middle of a batch, its rest is handled although the entry was asked back."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1), Raw(b"later", entry=2))
    await messages[1].ack()
    await messages[0].requeue()
    stream.clock.advance(1)
    assert indices(await taken(stream, *batch(0, 1, 2, 3, count=1))) == [0, 2, 3]


@pytest.mark.promise("PULSAR-24")
async def test_what_is_asked_back_is_handled() -> None:
    """Messages of one entry asked back together or one after the other all come to the handler again."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1, 2, 3))
    await messages[0].requeue()
    await messages[1].requeue()
    stream.clock.advance(1)
    await messages[2].requeue()
    stream.clock.advance(1)
    await messages[3].ack()
    assert indices(await taken(stream, *batch(0, 1, 2, 3, count=1))) == [0, 1, 2]


@pytest.mark.promise("PULSAR-24")
async def test_an_entry_that_does_not_come_back() -> None:
    """When the watch over an unfinished entry has ended, what was asked back of it is still handled."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1, 2, 3))
    await messages[0].requeue()
    await messages[1].ack()
    stream.clock.advance(200)
    assert session_is_fast(stream)
    await messages[3].requeue()
    stream.clock.advance(1)
    assert indices(await taken(stream, *batch(0, 1, 2, 3, count=2))) == [0, 3]
    await messages[2].ack()
    assert stream.consumer.acked[-1].redelivery_count == 2


@pytest.mark.promise("PULSAR-23")
async def test_the_watch_ends() -> None:
    """A few seconds after all of an entry is settled it is forgotten, and the fast path is back."""
    stream = await open_stream()
    messages = await taken(stream, *batch(0, 1))
    await messages[1].ack()
    assert session_is_fast(stream)
    await messages[0].requeue()
    stream.clock.advance(1)
    assert not session_is_fast(stream)
    (again,) = await taken(stream, *batch(0, count=1, size=2))
    await again.ack()
    stream.clock.advance(4)
    assert not session_is_fast(stream)
    assert indices(await taken(stream, *batch(0, 1, count=1))) == []
    stream.clock.advance(100)
    assert session_is_fast(stream)
    assert stream.clock.armed == 0


@pytest.mark.promise("PULSAR-23")
async def test_entries_of_one_message_are_not_watched() -> None:
    """A retry outside a batch leaves the fast path as it is."""
    stream = await open_stream()
    (message,) = await taken(stream, Raw(b"x", entry=1))
    await message.requeue()
    stream.clock.advance(1)
    assert session_is_fast(stream)


@pytest.mark.promise("PULSAR-23")
async def test_partitions_are_different_topics() -> None:
    """Equal ledgers and entries of two partitions are different entries."""
    stream = await open_stream()
    one, two = (f"persistent://public/default/orders-partition-{n}" for n in (0, 1))
    messages = await taken(stream, *batch(0, 1, size=2, topic=one), *batch(0, 1, size=2, topic=two))
    assert len(messages) == 4
    for message in messages[1:]:
        await message.ack()

    await messages[0].requeue()
    stream.clock.advance(1)
    assert indices(await taken(stream, *batch(0, 1, size=2, topic=two, count=1))) == [0, 1]


@pytest.mark.promise("PULSAR-24")
async def test_notes_are_bounded() -> None:
    """However many unfinished entries are asked back and never return, what is kept of them is bounded."""
    stream = await open_stream()
    for entry in range(1500):
        (message,) = await taken(stream, *batch(0, entry=entry))
        await message.requeue()
        stream.clock.advance(61 if entry % 10 == 0 else 1)

    assert len(stream.driver._session._neighbours._notes) <= 1024
    assert indices(await taken(stream, *batch(0, 1, entry=3, count=1))) == [0, 1]
