"""Brokers that publish or route wrongly."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from pystream.memory import MemoryDelivery
from pystream.protocols import Mounting, Outgoing

from pystream_testing.conformance.brokers._catalogue import Fault
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddConnection,
    OddPublisher,
    OddSubscriber,
    PlainDelivery,
    at_once,
)

__all__ = ["ROUTING_FAULTS", "reordering"]


class _LosingPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        if not outgoing.payload.endswith(b"7"):
            await super().publish(outgoing, options)


class _LosesPublishes(OddBroker):
    publisher_type = _LosingPublisher


class _RepeatingPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        await super().publish(outgoing, options)
        await super().publish(outgoing, options)


class _RepeatsPublishes(OddBroker):
    publisher_type = _RepeatingPublisher


def reordering(*, keyed: bool) -> type[OddSubscriber]:
    """A subscriber that reads ahead and hands out backwards: all of it, or what has no key."""

    class Reordering(OddSubscriber):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._ahead: deque[MemoryDelivery] = deque()

        def take(self) -> PlainDelivery | None:
            if not self._ahead:
                self._read_ahead()

            return self.wrapped(self._ahead.popleft()) if self._ahead else None

        def _read_ahead(self) -> None:
            read: list[MemoryDelivery] = []
            while (inner := self.inner.take()) is not None:
                read.append(inner)

            backwards = [inner for inner in read if keyed or inner.key is None]
            self._ahead.extend(reversed(backwards))
            self._ahead.extend(inner for inner in read if inner not in backwards)

        async def close(self) -> None:
            while self._ahead:
                self._ahead.popleft().release()

            await super().close()

    return Reordering


class _Reorders(OddBroker):
    subscriber_type = reordering(keyed=False)


class _ReordersKeys(OddBroker):
    subscriber_type = reordering(keyed=True)


class _CrossingConnection(OddConnection):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names: list[str] = []

    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        self.names.append(source.name)
        return await super().subscribe(source, mounting)


class _CrossingPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        names = self.connection.names if isinstance(self.connection, _CrossingConnection) else []
        for name in names:
            await super().publish(replace(outgoing, destination=name), options)


class _CrossesDestinations(OddBroker):
    connection_type = _CrossingConnection
    publisher_type = _CrossingPublisher


class _CompetingConnection(OddConnection):
    """The second subscription of a destination gets what the first has left over: nothing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._names: set[str] = set()

    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        inner = await self.inner.subscribe(source, mounting)
        kind = _LeftOver if source.name in self._names else OddSubscriber
        self._names.add(source.name)
        return kind(inner, self, source)


class _LeftOver(OddSubscriber):
    def take(self) -> PlainDelivery | None:
        while (left := self.inner.take()) is not None:
            at_once(left.ack())

        return None


class _CompetingReaders(OddBroker):
    connection_type = _CompetingConnection


class _ForgettingConnection(OddConnection):
    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        subscriber = await super().subscribe(source, mounting)
        while (waiting := subscriber.inner.take()) is not None:
            await waiting.ack()

        return subscriber


class _LosesBacklog(OddBroker):
    connection_type = _ForgettingConnection


ROUTING_FAULTS = (
    Fault(
        name="loses-publishes",
        rejected_by="routing.all_arrive",
        because="of 32 messages arrived",
        broker=_LosesPublishes,
    ),
    Fault(name="repeats-publishes", rejected_by="routing.once", because="arrived twice", broker=_RepeatsPublishes),
    Fault(
        name="reorders", rejected_by="routing.in_order", because="the order of publishing was lost", broker=_Reorders
    ),
    Fault(
        name="reorders-keys",
        rejected_by="routing.keyed_order",
        because="the order within a key was lost",
        broker=_ReordersKeys,
    ),
    Fault(
        name="crosses-destinations",
        rejected_by="routing.destinations_apart",
        because="arrived at another destination",
        broker=_CrossesDestinations,
    ),
    Fault(
        name="readers-compete",
        rejected_by="routing.each_subscription_gets_all",
        because="0 of 6 messages of one of two subscriptions arrived",
        broker=_CompetingReaders,
    ),
    Fault(
        name="loses-backlog",
        rejected_by="routing.backlog",
        because="the arrival of what was published without a consumer",
        broker=_LosesBacklog,
    ),
)
