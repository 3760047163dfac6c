"""Trap 3: negative acknowledgements leave in bursts, and delays are held here."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.errors import SettlementError
from pystream_pulsar import PulsarMessage
from pystream_pulsar._driver.nacks import BURST_INTERVAL, Nacks

from tests.pulsar.scripted import ManualClock, Raw, Stream, open_stream


async def taken(number: int) -> tuple[Stream, list[PulsarMessage]]:
    """That many messages in a handler's hands."""
    stream = await open_stream()
    return stream, stream.bring(*(Raw(b"%d" % entry, entry=entry) for entry in range(number)))


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-20")
async def test_a_steady_stream_leaves_in_bursts() -> None:
    """Retries made every 10 ms are sent together, in bursts 100 ms apart: more often, the client sends none."""
    stream, messages = await taken(50)
    sent: list[float] = []
    stream.consumer.on_nack = lambda raw: sent.append(stream.clock.now())
    for message in messages:
        await message.requeue()
        stream.clock.advance(0.01)

    stream.clock.advance(BURST_INTERVAL)
    times = sorted(set(sent))
    assert len(sent) == 50
    assert all(after >= before + BURST_INTERVAL for before, after in pairwise(times))


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-20")
async def test_a_lone_retry_leaves_at_once() -> None:
    """A retry that no burst precedes is not kept waiting."""
    stream, (message,) = await taken(1)
    await message.requeue()
    stream.clock.advance(0)
    assert len(stream.consumer.nacked) == 1


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-21")
async def test_a_delay_is_never_early() -> None:
    """A delayed message is asked back when its delay is over, not before, and counted as delayed until then."""
    stream, (first, second) = await taken(2)
    await first.retry_after(5)
    await second.retry_after(3)
    assert stream.driver.delayed == 2
    stream.clock.advance(2.999)
    assert stream.consumer.nacked == []
    stream.clock.advance(0.001)
    assert [raw.entry for raw in stream.consumer.nacked] == [1]
    assert stream.driver.delayed == 1
    stream.clock.advance(2)
    assert [raw.entry for raw in stream.consumer.nacked] == [1, 0]
    assert stream.driver.delayed == 0


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-20")
async def test_a_refused_request_is_made_again() -> None:
    """A negative acknowledgement that the client refuses is tried again until it is taken."""
    stream, (message,) = await taken(1)
    stream.consumer.refuses = SettlementError("not now")
    await message.requeue()
    stream.clock.advance(5)
    assert stream.consumer.nacked == []
    stream.consumer.refuses = None
    stream.clock.advance(1)
    assert len(stream.consumer.nacked) == 1


@pytest.mark.promise("PULSAR-20")
@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 3)), max_size=40))
def test_pace(steps: list[tuple[float, float]]) -> None:
    """Whatever is retried when: bursts keep their distance, no delay is cut short, and all leave soon after it."""
    clock = ManualClock()
    bursts: list[tuple[float, list[float]]] = []
    nacks = Nacks(clock, lambda burst: bursts.append((clock.now(), list(burst))))  # type: ignore[arg-type]  # any object may stand for a message here
    for pause, delay in steps:
        clock.advance(pause)
        nacks.held(clock.now() + delay, delay)  # type: ignore[arg-type]  # its due time stands for it

    clock.advance(3 + 2 * BURST_INTERVAL)
    times = [at for at, _ in bursts]
    assert all(after >= before + BURST_INTERVAL for before, after in pairwise(times))
    assert all(due <= at <= due + 2 * BURST_INTERVAL for at, burst in bursts for due in burst)
    assert sum(len(burst) for _, burst in bursts) == len(steps)
    assert (nacks.delayed, clock.armed) == (0, 0)
