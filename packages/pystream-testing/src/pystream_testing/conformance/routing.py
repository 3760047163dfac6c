"""Routing: what is published arrives, all of it, once, in order, and nowhere else."""

from __future__ import annotations

from typing import ClassVar

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._failure import expect
from pystream_testing.conformance._rig import connected
from pystream_testing.conformance.subject import Subject

__all__ = ["RoutingChecks"]


class RoutingChecks(CheckGroup):
    """Which messages arrive at which subscription, how often, and in which order."""

    group: ClassVar[str] = "routing"

    @check()
    async def test_routing_all_arrive(self, subject: Subject) -> None:
        """Each of 32 messages without a key arrives."""
        sent = [b"message %d" % number for number in range(32)]
        async with connected(subject) as rig:
            topic = subject.destination("all-arrive")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, *sent)
            arrived = await stream.several(len(sent))
            await stream.ack(*arrived)

        lost = set(sent) - {delivery.payload for delivery in arrived}
        expect(not lost, f"{len(lost)} of {len(sent)} messages did not arrive as they were published: {sorted(lost)}")

    @check(without=("repeats",))
    async def test_routing_once(self, subject: Subject) -> None:
        """A message arrives once."""
        async with connected(subject) as rig:
            topic = subject.destination("once")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"only")
            await stream.ack(await stream.next())
            await stream.nothing("a message arrived twice")

    @check("ordered")
    async def test_routing_in_order(self, subject: Subject) -> None:
        """Ten messages without a key arrive in the order of their publishing."""
        sent = [b"%d" % number for number in range(10)]
        async with connected(subject) as rig:
            topic = subject.destination("in-order")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, *sent)
            arrived = await stream.several(len(sent))
            await stream.ack(*arrived)

        order = [delivery.payload for delivery in arrived]
        expect(order == sent, f"the order of publishing was lost: {order}")

    @check("keys")
    async def test_routing_keyed_order(self, subject: Subject) -> None:
        """Of three keys with eight messages each, those of one key arrive in order."""
        keys = ["red", "green", "blue"]
        async with connected(subject) as rig:
            topic = subject.destination("keyed-order")
            stream = await rig.subscribe(topic)
            for number in range(8):
                for key in keys:
                    await rig.publish(topic, f"{key} {number}".encode(), key=key)

            arrived = await stream.several(8 * len(keys))
            await stream.ack(*arrived)

        for key in keys:
            order = [delivery.payload for delivery in arrived if delivery.payload.startswith(key.encode())]
            wanted = [f"{key} {number}".encode() for number in range(8)]
            expect(order == wanted, f"the order within a key was lost: {order}")

    @check()
    async def test_routing_destinations_apart(self, subject: Subject) -> None:
        """A message to one destination does not arrive at another."""
        async with connected(subject) as rig:
            here, there = subject.destination("apart"), subject.destination("apart")
            stream, other = await rig.subscribe(here), await rig.subscribe(there)
            await rig.publish(here, b"here")
            await stream.ack(await stream.next())
            await other.nothing("a message arrived at another destination")

    @check("readers")
    async def test_routing_each_subscription_gets_all(self, subject: Subject) -> None:
        """Two subscriptions of one destination get every message each."""
        sent = [b"%d" % number for number in range(6)]
        async with connected(subject) as rig:
            topic = subject.destination("two-readers")
            first, second = await rig.subscribe(topic, "first"), await rig.subscribe(topic, "second")
            await rig.publish(topic, *sent)
            for stream in (first, second):
                arrived = await stream.several(len(sent), "messages of one of two subscriptions")
                await stream.ack(*arrived)
                missed = set(sent) - {delivery.payload for delivery in arrived}
                expect(not missed, f"one of two subscriptions missed {sorted(missed)}")

    @check("backlog")
    async def test_routing_backlog(self, subject: Subject) -> None:
        """What is published while a subscription has no consumer arrives once it has one."""
        async with connected(subject) as rig:
            topic = subject.destination("backlog")
            await (await rig.subscribe(topic)).close()
            await rig.publish(topic, b"meanwhile")
            stream = await rig.subscribe(topic)
            delivery = await stream.next("what was published without a consumer")
            await stream.ack(delivery)
            expect(delivery.payload == b"meanwhile", f"{delivery.payload!r} came instead of the backlog")
