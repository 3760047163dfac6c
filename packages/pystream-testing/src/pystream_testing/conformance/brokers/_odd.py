"""Wrappers around the memory broker that behave like it; odd brokers override what they do otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pystream.memory import ConnectedMemoryBroker, MemoryBroker, MemoryDelivery, MemoryPublisher, MemorySubscriber
from pystream.protocols import Clock, Key, Mounting, Outgoing, Publisher, PublishPolicy, RetryKind, SubscriptionSource

__all__ = ["OddBroker", "OddConnection", "OddDelivery", "OddPublisher", "OddSubscriber", "PlainDelivery", "at_once"]


class PlainDelivery:
    """A delivery without capabilities."""

    def __init__(self, inner: MemoryDelivery, subscriber: OddSubscriber) -> None:
        self.inner = inner
        self.subscriber = subscriber

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def destination(self) -> str:
        return self.inner.destination

    @property
    def payload(self) -> bytes:
        return self.inner.payload

    @property
    def headers(self) -> Mapping[str, bytes]:
        return self.inner.headers

    @property
    def key(self) -> Key | None:
        return self.inner.key

    @property
    def lane_key(self) -> Key | None:
        return self.inner.lane_key

    @property
    def delivery_count(self) -> int | None:
        return self.inner.delivery_count

    @property
    def decode_error(self) -> Exception | None:
        return self.inner.decode_error

    @property
    def retry(self) -> RetryKind | None:
        return self.inner.retry

    async def ack(self) -> None:
        await self.inner.ack()

    async def reject(self) -> None:
        await self.inner.reject()

    async def requeue(self) -> None:
        await self.inner.requeue()

    def release(self) -> None:
        self.inner.release()


class OddDelivery(PlainDelivery):
    """A delivery with the capability `RetryAfter`."""

    async def retry_after(self, delay: float) -> None:
        await self.inner.retry_after(delay)


class OddSubscriber:
    """A subscriber whose deliveries are of the broker's `delivery_type`."""

    def __init__(self, inner: MemorySubscriber, connection: OddConnection, source: SubscriptionSource) -> None:
        self.inner = inner
        self.connection = connection
        self.source = source
        self.closed = False

    def take(self) -> PlainDelivery | None:
        inner = self.inner.take()
        return None if inner is None else self.wrapped(inner)

    def wrapped(self, inner: MemoryDelivery) -> PlainDelivery:
        return self.connection.broker.delivery_type(inner, self)

    async def wait(self) -> None:
        await self.inner.wait()

    def interrupt(self) -> None:
        self.inner.interrupt()

    @property
    def delayed(self) -> int:
        return self.inner.delayed

    async def close(self) -> None:
        self.closed = True
        await self.inner.close()


class OddPublisher:
    """A publisher."""

    def __init__(self, inner: MemoryPublisher, connection: OddConnection) -> None:
        self.inner = inner
        self.connection = connection

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        await self.inner.publish(outgoing, options)


class OddConnection:
    """A connection whose handles are of the types the broker names."""

    def __init__(self, inner: ConnectedMemoryBroker, broker: OddBroker, clock: Clock) -> None:
        self.inner = inner
        self.broker = broker
        self.clock = clock
        self.closed = False

    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        return self.broker.subscriber_type(await self.inner.subscribe(source, mounting), self, source)

    def publisher(self, policy: Any = None) -> Publisher:
        return self.broker.publisher_type(self.inner.publisher(policy), self)

    def default_policy(self) -> PublishPolicy:
        return self.inner.default_policy()

    async def close(self) -> None:
        self.closed = True
        await self.inner.close()


class OddBroker:
    """A broker over a memory broker of its own.

    Attributes:
        delivery_type: What its deliveries are.
        subscriber_type: What its subscribers are.
        publisher_type: What its publishers are.
        connection_type: What its connections are.
    """

    delivery_type: ClassVar[type[PlainDelivery]] = OddDelivery
    subscriber_type: ClassVar[type[OddSubscriber]] = OddSubscriber
    publisher_type: ClassVar[type[OddPublisher]] = OddPublisher
    connection_type: ClassVar[type[OddConnection]] = OddConnection

    def __init__(self) -> None:
        self.inner = MemoryBroker("odd")

    @property
    def source_types(self) -> tuple[type, ...]:
        return self.inner.source_types

    def default_source(self, name: str) -> SubscriptionSource:
        return self.inner.default_source(name)

    def describe(self) -> str:
        return self.inner.describe()

    async def connect(self, clock: Clock) -> OddConnection:
        return self.connection_type(await self.inner.connect(clock), self, clock)


def at_once(settlement: Any) -> None:
    """Run a coroutine that does not suspend, outside any task."""
    try:
        settlement.send(None)
    except StopIteration:
        return
