"""The group: who gets which entry, how often, and what becomes of entries nobody settled."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pystream.errors import SettlementRejected
from server import Server
from support import arrival, connected, new_stream, opened, publish, until

from pystream_redis import RedisDelivery

pytestmark = pytest.mark.anyio


def pending(client: Any, source: Any) -> list[tuple[str, int]]:
    """What the server counts as handed out and not acknowledged: consumer and count, oldest first."""
    entries = client.xpending_range(source.stream, source.group, "-", "+", 1000)
    return [(entry["consumer"].decode(), entry["times_delivered"]) for entry in entries]


def consumers(client: Any, source: Any) -> list[str]:
    return [consumer["name"].decode() for consumer in client.xinfo_consumers(source.stream, source.group)]


@pytest.mark.promise("SDK-148")
async def test_subscribers_of_a_group_share(redis_server: Server, client: Any) -> None:
    """Two subscribers of one group share its entries; each goes to one of them."""
    source = new_stream(read_ahead=1)
    async with connected(redis_server) as connection:
        readers = [await opened(connection, source, name) for name in ("one", "two")]
        await publish(connection, source, b"1", b"2")
        await until(lambda: len(pending(client, source)) == 2)
        payloads = []
        for reader in readers:
            delivery = await arrival(reader)
            payloads.append(delivery.payload)
            await delivery.ack()

    assert sorted(payloads) == [b"1", b"2"]


@pytest.mark.promise("SDK-148")
@pytest.mark.parametrize(("start", "first"), [("new", b"after"), ("oldest", b"before")])
async def test_where_a_group_begins(redis_server: Server, start: str, first: bytes) -> None:
    """A group that is made begins with the next entry or with the oldest, as its source says."""
    source = new_stream(start=start)
    async with connected(redis_server) as connection:
        await publish(connection, source, b"before")
        reader = await opened(connection, source)
        await publish(connection, source, b"after")
        delivery = await arrival(reader)
        await delivery.ack()

    assert delivery.payload == first


@pytest.mark.promise("SDK-149")
async def test_acknowledged_entries_are_not_pending(redis_server: Server, client: Any) -> None:
    """After an acknowledgement and a rejection nothing is pending, and a closed consumer is forgotten."""
    source = new_stream()
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        await publish(connection, source, b"ack", b"reject")
        await (await arrival(reader)).ack()
        await (await arrival(reader)).reject()
        await until(lambda: not pending(client, source))
        assert len(consumers(client, source)) == 1
        await reader.close()
        assert consumers(client, source) == []


@pytest.mark.promise("SDK-150")
async def test_closed_subscriber_gives_back_to_its_siblings(redis_server: Server, client: Any) -> None:
    """What a closed subscriber had buffered, released, held or requeued goes to an open one, the counts honest."""
    source = new_stream(claim_after=60.0)
    async with connected(redis_server) as connection:
        leaving = await opened(connection, source, "leaving")
        await publish(connection, source, b"released", b"held", b"buffered")
        released, held = await arrival(leaving), await arrival(leaving)
        await until(lambda: len(pending(client, source)) == 3)
        await held.retry_after(3600)
        released.release()
        staying = await opened(connection, source, "staying")
        await leaving.close()
        counts = {}
        for _ in range(3):
            delivery = await arrival(staying)
            counts[delivery.payload] = delivery.delivery_count
            await delivery.ack()

        assert counts == {b"released": 1, b"held": 2, b"buffered": 1}
        await until(lambda: not pending(client, source))


_DIES = """
import os, sys, anyio
from pystream.clock import LoopClock
from pystream.protocols import Mounting
from pystream_redis import RedisBroker, RedisStream

async def main():
    connection = await RedisBroker(sys.argv[1]).connect(LoopClock())
    source = RedisStream(sys.argv[2], "group", start="oldest", claim_after=1.0, claim_every=0.05)
    reader = await connection.subscribe(source, Mounting(name="dying"))
    while reader.take() is None:
        await reader.wait()
    os._exit(9)

anyio.run(main)
"""


@pytest.mark.promise("SDK-151")
async def test_entries_of_a_killed_process_come_back(redis_server: Server, client: Any) -> None:
    """What a process had in hand and in its buffer when it died comes back to a living consumer, its count raised."""
    source = new_stream(start="oldest")
    async with connected(redis_server) as connection:
        await publish(connection, source, b"in hand", b"buffered")
        command = [sys.executable, "-c", _DIES, redis_server.url, source.stream]
        died = await anyio.to_thread.run_sync(lambda: subprocess.run(command, timeout=30, check=False).returncode)
        assert died == 9
        assert len(pending(client, source)) == 2
        reader = await opened(connection, source)
        back = [await arrival(reader) for _ in range(2)]
        for delivery in back:
            await delivery.ack()

    assert [(delivery.payload, delivery.delivery_count) for delivery in back] == [(b"in hand", 2), (b"buffered", 2)]


@pytest.mark.promise("SDK-151")
async def test_slow_handler_keeps_its_entry(redis_server: Server, client: Any) -> None:
    """An entry that is in hand for longer than `claim_after` is not claimed by a sibling that looks all the time."""
    source = new_stream(claim_after=1.0)
    async with connected(redis_server) as connection:
        slow, sibling = await opened(connection, source, "slow"), await opened(connection, source, "sibling")
        await publish(connection, source, b"slow")
        taken: list[RedisDelivery] = []

        def one_has_it() -> bool:
            taken.extend(filter(None, (slow.take(), sibling.take())))
            return bool(taken)

        await until(one_has_it)
        await anyio.sleep(2.0)  # twice claim_after: it is the server that counts
        assert slow.take() is None
        assert sibling.take() is None
        assert [count for _, count in pending(client, source)] == [1]  # it was renewed, not claimed again
        await taken[0].ack()


@pytest.mark.promise("SDK-151")
async def test_entry_that_another_has_claimed_is_left_to_it(redis_server: Server, client: Any) -> None:
    """What a sibling has claimed meanwhile is neither renewed nor given back over its head."""
    source = new_stream()
    async with connected(redis_server) as connection:
        stalled = await opened(connection, source)
        await publish(connection, source, b"x")
        delivery = await arrival(stalled)
        client.xclaim(source.stream, source.group, "sibling", 0, [delivery.entry_id], idle=500)
        await anyio.sleep(0.3)  # several looks of the keeper, for which the entry is due to be renewed
        delivery.release()
        await stalled.close()
        assert pending(client, source) == [("sibling", 2)]


@pytest.mark.promise("SDK-152")
async def test_poison_does_not_starve_new_entries(redis_server: Server) -> None:
    """While every entry is requeued again and again, new ones arrive."""
    source = new_stream(read_ahead=2)
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        await publish(connection, source, *(b"poison %d" % number for number in range(8)), b"good")
        seen: list[bytes] = []
        while b"good" not in seen:
            delivery = await arrival(reader)
            seen.append(delivery.payload)
            assert len(seen) < 100
            await delivery.requeue()
            await anyio.sleep(0.02)  # so that it is back when the next one is taken


@pytest.mark.promise("SDK-152")
async def test_read_ahead_is_bounded(redis_server: Server, client: Any) -> None:
    """A subscriber takes no more from the server than `read_ahead`, beyond what is in hand."""
    source = new_stream(read_ahead=4)
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        await publish(connection, source, *(b"%d" % number for number in range(40)))
        first = await arrival(reader)
        await until(lambda: len(pending(client, source)) >= 4)
        await anyio.sleep(0.2)  # time enough for a reader without a bound
        assert len(pending(client, source)) <= 5
        await first.ack()
        for _ in range(39):
            delivery = await arrival(reader)
            assert len(pending(client, source)) <= 9  # acknowledgements may be under way
            await delivery.ack()


@pytest.mark.promise("SDK-152")
async def test_more_than_one_look_finds_is_claimed_at_once(redis_server: Server) -> None:
    """A hundred entries given back arrive although the source looks for such once an hour."""
    source = new_stream(start="oldest", claim_after=86_400.0, claim_every=3600.0, read_ahead=100)
    async with connected(redis_server) as connection:
        await publish(connection, source, *(b"%d" % number for number in range(100)))
        leaving = await opened(connection, source)
        (await arrival(leaving)).release()
        await leaving.close()
        reader = await opened(connection, replace(source, read_ahead=8))
        numbers = []
        for _ in range(100):
            delivery = await arrival(reader)
            numbers.append(int(delivery.payload))
            await delivery.ack()

    assert sorted(numbers) == list(range(100))


@pytest.mark.promise("SDK-153")
async def test_delay_that_is_none_is_rejected(redis_server: Server) -> None:
    """A negative or endless delay is rejected, and the delivery can still be settled."""
    source = new_stream()
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        await publish(connection, source, b"x")
        delivery = await arrival(reader)
        for delay in (-1.0, float("inf"), float("nan")):
            with pytest.raises(SettlementRejected, match="cannot be kept"):
                await delivery.retry_after(delay)

        await delivery.retry_after(3600)
        assert reader.delayed == 1
