"""The plugin's driver over the in-process transport, under random schedules.

Several connections share a subscription; handlers acknowledge, retry and delay; consumers
close and open. Nothing is lost, nothing that was acknowledged is handled again, counts are
right, and at rest nothing is left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pystream_pulsar import PulsarMessage, PulsarSubscription, SubscriptionType
from pystream_pulsar._driver.driver import Driver
from pystream_testing.pulsar.in_process import InProcessCluster, SubscriptionCounts

from tests.testing.pulsar.in_process.rig import Rig


@dataclass
class Service:
    """Drivers of one subscription, what their handlers have in hand, and what they have done."""

    rig: Rig
    source: PulsarSubscription
    alone: bool
    batching: bool
    drivers: list[Driver] = field(default_factory=list)
    in_hand: list[tuple[int, PulsarMessage]] = field(default_factory=list)
    published: list[bytes] = field(default_factory=list)
    done: set[bytes] = field(default_factory=set)
    failures: Counter[bytes] = field(default_factory=Counter)
    counts: dict[bytes, int] = field(default_factory=dict)
    keys: dict[bytes, str | None] = field(default_factory=dict)
    made: int = 0

    @property
    def exact(self) -> bool:
        """Whether an entry is one message, or all its copies pass through one driver that remembers."""
        return self.alone or not self.batching

    async def open(self) -> None:
        if len(self.drivers) < (1 if self.alone else 3):
            self.drivers.append(await self.rig.subscribe(self.source))

    async def close(self, at: int) -> None:
        if self.alone or len(self.drivers) < 2:
            return

        driver = self.drivers.pop(at % len(self.drivers))
        kept = []
        for number, message in self.in_hand:
            if number == id(driver):
                message.release()
            else:
                kept.append((number, message))

        self.in_hand = kept
        await driver.close()

    async def publish(self, count: int, keyed: int) -> None:
        payloads = [b"%d" % (self.made + number) for number in range(count)]
        keys = [f"k{(self.made + number) % keyed}" if keyed else None for number in range(count)]
        self.made += count
        self.published += payloads
        self.keys |= dict(zip(payloads, keys, strict=True))
        await self.rig.publish(*payloads, keys=keys, batching=self.batching)

    def take(self, at: int) -> None:
        driver = self.drivers[at % len(self.drivers)]
        for _ in range(4):
            message = driver.take()
            if message is None:
                return

            self.look_at(message)
            self.in_hand.append((id(driver), message))

    def look_at(self, message: PulsarMessage) -> None:
        name = message.payload
        assert self.keys[name] == message.key
        if not self.exact:  # a sibling may get neighbours of what was asked back, as live
            return

        assert name not in self.done, f"{name!r} is handled again"
        assert name not in [other.payload for _, other in self.in_hand], f"{name!r} is handled twice at once"
        # A consumer that closes may not have sent its request: then the count stays as it was.
        least = self.failures[name] + 1 if self.alone and not self.batching else self.counts.get(name, 1)
        assert least <= message.delivery_count <= self.failures[name] + 1
        self.counts[name] = message.delivery_count

    async def settle(self, at: int, delay: float | None) -> None:
        if not self.in_hand:
            return

        _, message = self.in_hand.pop(at % len(self.in_hand))
        if delay is None:
            await message.ack()
            self.done.add(message.payload)
        else:
            await message.retry_after(delay)
            self.failures[message.payload] += 1


numbers = st.integers(0, 1000)
steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([1, 2, 3, 7]), st.sampled_from([0, 2, 3])),
    st.tuples(st.just("take"), numbers, st.just(0)),
    st.tuples(st.just("take"), numbers, st.just(0)),
    st.tuples(st.just("ack"), numbers, st.just(0)),
    st.tuples(st.just("ack"), numbers, st.just(0)),
    st.tuples(st.just("retry"), numbers, st.sampled_from([0, 3])),
    st.tuples(st.just("advance"), st.sampled_from([1, 10, 25, 600]), st.just(0)),
    st.tuples(st.just("open"), st.just(0), st.just(0)),
    st.tuples(st.just("close"), numbers, st.just(0)),
)
schedules = st.lists(steps, min_size=5, max_size=60)


async def step(service: Service, name: str, first: int, second: int) -> None:
    if name == "publish":
        await service.publish(first, second)
    elif name == "take":
        service.take(first)
    elif name == "ack":
        await service.settle(first, None)
    elif name == "retry":
        await service.settle(first, float(second))
    elif name == "advance":
        service.rig.clock.advance(first / 100)
    elif name == "open":
        await service.open()
    else:
        await service.close(first)


async def play(schedule: list[tuple[str, int, int]], service: Service) -> None:
    """Take these steps, let everything come to rest, and look at what has become of the messages."""
    await service.open()
    for name, first, second in schedule:
        await step(service, name, first, second)

    for _ in range(40):
        for at in range(len(service.drivers)):
            service.take(at)

        while service.in_hand:
            await service.settle(0, None)

        service.rig.clock.advance(0.5)

    assert service.done == set(service.published), f"lost: {set(service.published) - service.done}"
    left = service.rig.cluster.counts("orders", "billing")
    assert left == SubscriptionCounts(0, 0, 0)
    assert [connection.owed() for connection in service.rig.connections] == [0] * len(service.rig.connections)
    await service.rig.close()
    service.rig.clock.advance(200)
    assert service.rig.clock.timers == 0


def service(kind: SubscriptionType, queue: int, seed: int, *, alone: bool, batching: bool) -> Service:
    source = PulsarSubscription("orders", "billing", type=kind, receiver_queue_size=queue)
    return Service(Rig(cluster=InProcessCluster(seed=seed)), source, alone, batching)


kinds = st.sampled_from([SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
queues = st.sampled_from([1, 2, 5, 100])


@pytest.mark.promise("TESTING-78")
@settings(max_examples=120)
@given(schedules, kinds, queues, st.booleans())
def test_alone(schedule: list[tuple[str, int, int]], kind: SubscriptionType, queue: int, batching: bool) -> None:
    """One consumer handles each message until it acknowledges it, never again after, with a count of its own."""
    anyio.run(play, schedule, service(kind, queue, 0, alone=True, batching=batching))


@pytest.mark.promise("TESTING-78")
@settings(max_examples=120)
@given(schedules, kinds, queues, st.integers(0, 5), st.booleans())
def test_with_siblings(
    schedule: list[tuple[str, int, int]], kind: SubscriptionType, queue: int, seed: int, batching: bool
) -> None:
    """With siblings that come and go nothing is lost or stuck, and what was acknowledged alone is not handled again."""
    one = service(kind, queue, seed, alone=False, batching=batching)
    anyio.run(play, schedule, one)
