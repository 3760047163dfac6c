"""Trap 4, counts: the server counts entries, the handler's attempts are those of a message."""

from __future__ import annotations

import pytest
from pystream_pulsar import PulsarMessage

from tests.pulsar.scripted import Raw, Stream, batch, open_stream

pytestmark = pytest.mark.anyio


async def fail(stream: Stream, message: PulsarMessage) -> None:
    """Retry a message, and have it asked back."""
    await message.requeue()
    stream.clock.advance(1)


@pytest.mark.promise("PULSAR-25")
async def test_the_server_counts_single_messages() -> None:
    """Outside a batch the count is the server's, from 1."""
    stream = await open_stream()
    counts = []
    for redelivered in range(3):
        (message,) = stream.bring(Raw(b"x", redelivery_count=redelivered))
        counts.append(message.delivery_count)
        await fail(stream, message)

    assert counts == [1, 2, 3]


@pytest.mark.promise("PULSAR-25")
async def test_a_neighbours_failures_are_not_counted() -> None:
    """A message that was never tried is at its first attempt, however often its neighbour has failed."""
    stream = await open_stream()
    (failing,) = stream.bring(*batch(0, size=2))
    for redelivered in (1, 2, 3):
        await fail(stream, failing)
        failing, *_ = stream.bring(*batch(0, size=2, count=redelivered))
        assert failing.delivery_count == redelivered + 1

    await fail(stream, failing)
    again, untried = stream.bring(*batch(0, 1, size=2, count=4))
    assert (again.delivery_count, untried.delivery_count) == (5, 1)


@pytest.mark.promise("PULSAR-25")
async def test_one_burst_counts_once() -> None:
    """Two neighbours asked back together are both at their second attempt: the server counts one request."""
    stream = await open_stream()
    messages = stream.bring(*batch(0, 1, size=2))
    for message in messages:
        await message.requeue()

    stream.clock.advance(1)
    assert [message.delivery_count for message in stream.bring(*batch(0, 1, size=2, count=1))] == [2, 2]


@pytest.mark.promise("PULSAR-25")
async def test_failures_elsewhere_are_counted() -> None:
    """Where others have asked an entry back too, or did before us, the server's count is told."""
    stream = await open_stream()
    (message,) = stream.bring(*batch(0, size=2))
    await fail(stream, message)
    (message, *_) = stream.bring(*batch(0, 1, size=2, count=2))
    assert message.delivery_count == 3

    (message,) = stream.bring(*batch(0, size=2, entry=5, count=3))
    await fail(stream, message)
    assert [m.delivery_count for m in stream.bring(*batch(0, 1, size=2, entry=5, count=4))] == [5, 5]
