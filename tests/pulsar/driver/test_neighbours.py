"""Trap 4: settled neighbours that come back with an entry are acknowledged unseen."""

from __future__ import annotations

import pytest
from pystream_pulsar import PulsarMessage

from tests.pulsar.scripted import Raw, Stream, batch, open_stream

pytestmark = pytest.mark.anyio


def indices(messages: list[PulsarMessage]) -> list[int]:
    """Which messages of their batch these are."""
    return [message.identity.batch_index for message in messages]


def session_is_fast(stream: Stream) -> bool:
    """Whether arrivals and acknowledgements pass all defences by."""
    return stream.driver._session.fast_thread != 0


@pytest.mark.promise("PULSAR-23")
async def test_settled_neighbours_are_not_handled_again() -> None:
    """Three of four acknowledged and one asked back: of the four copies one is handled, three are acknowledged."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1, 2, 3))
    for message in messages[1:]:
        await message.ack()

    await messages[0].requeue()
    stream.clock.advance(1)
    copies = batch(0, 1, 2, 3, count=1)
    (again,) = stream.bring(*copies)
    assert again.identity.batch_index == 0
    assert stream.consumer.acked[3:] == copies[1:]
    await again.ack()
    assert stream.consumer.acked[6:] == copies[:1]


@pytest.mark.promise("PULSAR-23")
async def test_neighbours_settled_long_before() -> None:
    """It makes no difference how much was pulled and settled between the neighbours and the retry."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1, 2, 3), *(Raw(b"%d" % n, entry=n) for n in range(100, 400)))
    for message in messages[1:]:
        await message.ack()

    await messages[0].retry_after(50)
    stream.bring(*(Raw(b"%d" % n, entry=n) for n in range(1000, 4000)))
    stream.clock.advance(51)
    assert indices(stream.bring(*batch(0, 1, 2, 3, count=1))) == [0]


@pytest.mark.promise("PULSAR-23")
@pytest.mark.parametrize("payload", [b"x", b"x" * 100_000], ids=["small", "large"])
async def test_a_handler_that_takes_long(payload: bytes) -> None:
    """Nor how much was pulled since, when the handler of the first took long and then retries."""
    stream = await open_stream()
    first, *others = stream.bring(*batch(*range(30), size=30))
    for message in others:
        await message.ack()

    for entry in range(1000, 4000):
        for message in stream.bring(Raw(b"%d" % entry + payload, entry=entry)):
            await message.ack()

    await first.requeue()
    stream.clock.advance(1)
    assert indices(stream.bring(*batch(*range(30), size=30, count=1))) == [0]


@pytest.mark.promise("PULSAR-23")
async def test_neighbours_settled_afterwards() -> None:
    """A neighbour settled after the entry was asked back is not handled again either."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1, 2, 3))
    await messages[0].requeue()
    stream.clock.advance(1)
    await messages[1].ack()
    assert indices(stream.bring(*batch(0, 1, 2, 3, count=1))) == [0]
    await messages[2].ack()
    assert indices(stream.bring(*batch(0, 1, 2, 3, count=2))) == []


@pytest.mark.promise("PULSAR-23")
async def test_a_batch_that_is_pulled_in_parts() -> None:
    """While the rest of a batch has still to be pulled, a retry of its first message does not harm it."""
    stream = await open_stream()
    stream.consumer.feed(*batch(*range(40), size=40))
    await stream.take().retry_after(30)
    rest = stream.take_all()
    assert indices(rest) == list(range(1, 40))
    for message in rest:
        await message.ack()

    stream.bring(*(Raw(b"%d" % n, entry=n) for n in range(1000, 3000)))
    stream.clock.advance(31)
    assert indices(stream.bring(*batch(*range(40), size=40, count=1))) == [0]


@pytest.mark.promise("PULSAR-24")
async def test_what_was_never_received_is_handled() -> None:
    """After a reconnect in the middle of a batch, its rest is handled although the entry was asked back."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1), Raw(b"later", entry=2))
    await messages[1].ack()
    await messages[0].requeue()
    stream.clock.advance(1)
    assert indices(stream.bring(*batch(0, 1, 2, 3, count=1))) == [0, 2, 3]


@pytest.mark.promise("PULSAR-24")
async def test_what_is_asked_back_is_handled() -> None:
    """Messages of one entry asked back together or one after the other all come to the handler again."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1, 2, 3))
    await messages[0].requeue()
    await messages[1].requeue()
    stream.clock.advance(1)
    await messages[2].requeue()
    stream.clock.advance(1)
    await messages[3].ack()
    assert indices(stream.bring(*batch(0, 1, 2, 3, count=1))) == [0, 1, 2]


@pytest.mark.promise("PULSAR-24")
async def test_an_entry_that_does_not_come_back() -> None:
    """When the watch over an unfinished entry has ended, what was asked back of it is still handled."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1, 2, 3))
    await messages[0].requeue()
    await messages[1].ack()
    stream.clock.advance(200)
    assert session_is_fast(stream)
    await messages[3].requeue()
    stream.clock.advance(1)
    assert indices(stream.bring(*batch(0, 1, 2, 3, count=2))) == [0, 3]
    await messages[2].ack()
    assert stream.consumer.acked[-1].redelivery_count == 2


@pytest.mark.promise("PULSAR-23")
async def test_the_watch_ends() -> None:
    """A few seconds after all of an entry is settled it is forgotten, and the fast path is back."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1))
    await messages[1].ack()
    assert session_is_fast(stream)
    await messages[0].requeue()
    stream.clock.advance(1)
    assert not session_is_fast(stream)
    (again,) = stream.bring(*batch(0, count=1, size=2))
    await again.ack()
    stream.clock.advance(4)
    assert not session_is_fast(stream)
    assert indices(stream.bring(*batch(0, 1, count=1))) == []
    stream.clock.advance(100)
    assert session_is_fast(stream)
    assert stream.clock.armed == 0


@pytest.mark.promise("PULSAR-23")
async def test_entries_of_one_message_are_not_watched() -> None:
    """A retry outside a batch leaves the fast path as it is."""
    stream = await open_stream()
    (message,) = stream.bring(Raw(b"x", entry=1))
    await message.requeue()
    stream.clock.advance(1)
    assert session_is_fast(stream)


@pytest.mark.promise("PULSAR-23")
async def test_partitions_are_different_topics() -> None:
    """Equal ledgers and entries of two partitions are different entries."""
    stream = await open_stream()
    one, two = (f"persistent://public/default/orders-partition-{n}" for n in (0, 1))
    messages = stream.bring(*batch(0, 1, size=2, topic=one), *batch(0, 1, size=2, topic=two))
    assert len(messages) == 4
    for message in messages[1:]:
        await message.ack()

    await messages[0].requeue()
    stream.clock.advance(1)
    assert indices(stream.bring(*batch(0, 1, size=2, topic=two, count=1))) == [0, 1]


async def ask_back_many(stream: Stream) -> None:
    """Ask back 1,500 entries that never return."""
    for entry in range(100, 1600):
        (message,) = stream.bring(*batch(0, entry=entry))
        await message.requeue()
        stream.clock.advance(61 if entry % 10 == 0 else 1)


@pytest.mark.promise("PULSAR-24")
async def test_notes_are_bounded() -> None:
    """However many unfinished entries are asked back and never return, what is kept of them is bounded."""
    stream = await open_stream()
    await ask_back_many(stream)
    assert len(stream.driver._session._neighbours._notes) <= 1024
    assert indices(stream.bring(*batch(0, 1, entry=103, count=1))) == [0, 1]


@pytest.mark.promise("PULSAR-24")
async def test_nothing_is_forgotten_of_what_is_in_hand() -> None:
    """What was asked back of an entry is handled, however long another of its messages is in hand."""
    stream = await open_stream()
    first, *_, last = stream.bring(*batch(0, 1, 2, 3))
    await first.requeue()
    await ask_back_many(stream)
    await last.requeue()
    stream.clock.advance(1)
    assert 0 in indices(stream.bring(*batch(0, 1, 2, 3, count=2)))
