"""Entries, batches, counts and types, through the plugin's own driver."""

from __future__ import annotations

from collections import defaultdict

import pytest
from pystream.errors import SettlementUnsupported
from pystream.protocols import Outgoing
from pystream_pulsar import (
    InitialPosition,
    PulsarPublishError,
    PulsarPublishPolicy,
    PulsarSubscription,
    SubscriptionType,
)
from pystream_testing.pulsar.in_process import InProcessCluster

from tests.testing.pulsar.in_process.rig import Rig, take_all

pytestmark = pytest.mark.anyio


def source(kind: SubscriptionType, *, queue: int = 100) -> PulsarSubscription:
    return PulsarSubscription("orders", "billing", type=kind, receiver_queue_size=queue)


@pytest.mark.promise("TESTING-74")
async def test_overlapping_sends_share_an_entry_per_key() -> None:
    """Publishes that overlap are one entry for each key; without batching each is its own."""
    rig = Rig()
    driver = await rig.subscribe()
    await rig.publish(b"1", b"2", b"3", keys=["a", "b", "a"])
    await rig.publish(b"4")
    await rig.publish(b"5", b"6", batching=False)

    entries = defaultdict(set)
    for message in take_all(driver):
        entries[message.identity.entry].add((message.payload, message.identity.batch_index >= 0))

    assert sorted(sorted(entry) for entry in entries.values()) == [
        [(b"1", True), (b"3", True)],
        [(b"2", True)],
        [(b"4", True)],
        [(b"5", False)],
        [(b"6", False)],
    ]


@pytest.mark.promise("TESTING-74")
async def test_batches_are_bounded() -> None:
    """An entry holds 1000 messages at most, and messages of 128 KiB together."""
    rig = Rig()
    driver = await rig.subscribe()
    await rig.publish(*[b"%d" % number for number in range(1500)])
    await rig.publish(b"x" * 100_000, b"y" * 100_000)

    sizes = [message._raw.batch_size for message in take_all(driver) if message.identity.batch_index == 0]

    assert sorted(sizes) == [1, 1, 500, 1000]


@pytest.mark.promise("TESTING-74")
async def test_neighbours_are_not_handled_again() -> None:
    """A retried message of a batch comes back alone, its count its own; the entry is done when all are."""
    rig = Rig()
    driver = await rig.subscribe()
    await rig.publish(b"1", b"2", b"3")
    first, second, third = take_all(driver)
    await first.ack()
    await second.requeue()
    await third.ack()
    rig.clock.advance(0.3)

    (again,) = take_all(driver)

    assert (again.payload, again.delivery_count) == (second.payload, 2)
    await again.ack()
    assert rig.cluster.counts("orders", "billing").in_flight == 0
    await driver.close()
    assert take_all(await rig.subscribe()) == []


@pytest.mark.promise("TESTING-75")
async def test_a_retry_takes_its_time() -> None:
    """A retry comes 100 ms after it was asked for, and not before; a delay comes on top."""
    rig = Rig()
    driver = await rig.subscribe()
    await rig.publish(b"1", b"2", batching=False)
    first, second = take_all(driver)
    await first.requeue()
    await second.retry_after(5)

    rig.clock.advance(0.099)
    assert take_all(driver) == []
    rig.clock.advance(0.002)
    assert [message.payload for message in take_all(driver)] == [b"1"]
    rig.clock.advance(4.9)
    assert take_all(driver) == []
    rig.clock.advance(0.2)
    assert [(message.payload, message.delivery_count) for message in take_all(driver)] == [(b"2", 2)]


@pytest.mark.promise("TESTING-75")
async def test_counts_over_a_close() -> None:
    """A sibling gets what was unsettled with its count; after the last consumer counts begin again."""
    rig = Rig()
    driver = await rig.subscribe()
    await rig.publish(b"1")
    (message,) = take_all(driver)
    await message.requeue()
    rig.clock.advance(0.2)
    (message,) = take_all(driver)
    assert message.delivery_count == 2

    sibling = await rig.subscribe()
    message.release()
    await driver.close()
    (message,) = take_all(sibling)
    assert message.delivery_count == 2

    message.release()
    await sibling.close()
    (message,) = take_all(await rig.subscribe())
    assert message.delivery_count == 1


@pytest.mark.promise("TESTING-76")
@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER])
async def test_ordered_types_retry_in_place(kind: SubscriptionType) -> None:
    """On EXCLUSIVE and FAILOVER nothing is asked back, as live: the plugin refuses to."""
    rig = Rig()
    driver = await rig.subscribe(source(kind))
    await rig.publish(b"1")
    (message,) = take_all(driver)
    with pytest.raises(SettlementUnsupported):
        await message.requeue()


@pytest.mark.promise("TESTING-76")
async def test_shared_takes_turns_within_its_room() -> None:
    """SHARED consumers take turns; one without room is passed over."""
    rig = Rig()
    full, roomy = [await rig.subscribe(source(SubscriptionType.SHARED, queue=queue)) for queue in (2, 100)]
    await rig.publish(*[b"%d" % number for number in range(8)], batching=False)

    assert [message.payload for message in take_all(roomy)] == [b"1", b"3", b"4", b"5", b"6", b"7"]
    assert [message.payload for message in take_all(full)] == [b"0", b"2"]


@pytest.mark.promise("TESTING-76")
async def test_seeds_choose() -> None:
    """Which FAILOVER consumer is active, and where a key goes, follows the seed: the same each time."""

    async def active(seed: int) -> int:
        rig = Rig(cluster=InProcessCluster(seed=seed))
        drivers = [await rig.subscribe(source(SubscriptionType.FAILOVER)) for _ in range(3)]
        await rig.publish(b"1")
        return [bool(take_all(driver)) for driver in drivers].index(True)

    async def owners(seed: int) -> list[list[bytes]]:
        rig = Rig(cluster=InProcessCluster(seed=seed))
        drivers = [await rig.subscribe(source(SubscriptionType.KEY_SHARED)) for _ in range(2)]
        for number in range(8):
            await rig.publish(b"%d" % number, key=f"k{number}")

        return [[message.payload for message in take_all(driver)] for driver in drivers]

    assert [await active(seed) for seed in range(12)] == [await active(seed) for seed in range(12)]
    assert {await active(seed) for seed in range(12)} == {0, 1, 2}
    assert await owners(1) == await owners(1)
    assert await owners(1) != await owners(2)
    assert all(await owners(1))


@pytest.mark.promise("TESTING-77")
async def test_nothing_is_kept_for_nobody() -> None:
    """A topic without subscriptions keeps nothing, and one with some only what they need."""
    rig = Rig()
    await rig.publish(b"lost", batching=False)
    earliest = PulsarSubscription("orders", "billing", initial_position=InitialPosition.EARLIEST)
    driver = await rig.subscribe(earliest)
    assert take_all(driver) == []

    await rig.publish(b"1", b"2", batching=False)
    for message in take_all(driver):
        await message.ack()

    late = PulsarSubscription("orders", "audit", initial_position=InitialPosition.EARLIEST)
    assert take_all(await rig.subscribe(late)) == []


@pytest.mark.promise("TESTING-73")
@pytest.mark.parametrize("batching", [True, False])
async def test_the_limit_counts_metadata(batching: bool) -> None:
    """A message is refused by its encoded size, names the reason, and never arrives."""
    rig = Rig(cluster=InProcessCluster(max_message_size=1000))
    driver = await rig.subscribe()
    await rig.publish(b"x" * 900, batching=batching)
    publisher = rig.connections[0].publisher(PulsarPublishPolicy(batching=batching))
    with pytest.raises(PulsarPublishError) as caught:
        await publisher.publish(Outgoing("orders", b"x" * 1000, {}))

    assert caught.value.result == "MessageTooBig"
    assert [len(message.payload) for message in take_all(driver)] == [900]


@pytest.mark.promise("TESTING-75")
async def test_publish_times_go_by_the_clock() -> None:
    """The time of publishing advances with the clock and stands still with it."""
    rig = Rig()
    driver = await rig.subscribe()
    await rig.publish(b"1")
    rig.clock.advance(3600)
    await rig.publish(b"2")

    first, second = take_all(driver)

    assert round(second.publish_time - first.publish_time, 2) == 3600
