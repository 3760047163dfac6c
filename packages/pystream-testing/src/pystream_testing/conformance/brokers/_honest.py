"""Brokers that are odd, say so, and pass."""

from __future__ import annotations

from typing import Any

from pystream.errors import PublishError, SettlementUnsupported, SubscribeError
from pystream.memory import MemoryDelivery
from pystream.protocols import Mounting, Outgoing

from pystream_testing.conformance.brokers._catalogue import Honest
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddConnection,
    OddDelivery,
    OddPublisher,
    OddSubscriber,
    PlainDelivery,
    at_once,
)
from pystream_testing.conformance.brokers._routing_faults import reordering
from pystream_testing.conformance.subject import Capabilities

__all__ = ["HONEST"]


class _NoRequeueDelivery(OddDelivery):
    delivery_count: None = None

    async def requeue(self) -> None:
        raise SettlementUnsupported("this broker hands nothing out again on request")


class _NoRequeue(OddBroker):
    delivery_type = _NoRequeueDelivery


class _UnsettledDelivery(PlainDelivery):
    """Gone from the broker as soon as it was handed out."""

    delivery_count: None = None

    def __init__(self, inner: MemoryDelivery, subscriber: OddSubscriber) -> None:
        super().__init__(inner, subscriber)
        at_once(inner.ack())

    async def ack(self) -> None:
        raise SettlementUnsupported("this broker knows no acknowledgement")

    async def reject(self) -> None:
        raise SettlementUnsupported("this broker knows no rejection")

    async def requeue(self) -> None:
        raise SettlementUnsupported("this broker hands nothing out again")

    def release(self) -> None:
        """Do nothing: nothing is left to give back."""


class _NoSettlement(OddBroker):
    delivery_type = _UnsettledDelivery


class _NoDelay(OddBroker):
    delivery_type = PlainDelivery


class _UncountedDelivery(OddDelivery):
    @property
    def delivery_count(self) -> int | None:
        return None


class _NoCounts(OddBroker):
    delivery_type = _UncountedDelivery


class _TextOnlyPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        for name, value in outgoing.headers.items():
            try:
                empty = not value.decode()
            except UnicodeDecodeError as error:
                raise PublishError(f"header {name!r} is no text in UTF-8; encode it as text") from error

            if empty:
                raise PublishError(f"header {name!r} is empty; leave it out")

        await super().publish(outgoing, options)


class _RefusesHeaders(OddBroker):
    publisher_type = _TextOnlyPublisher


class _TwicePublisher(OddPublisher):
    """As one that was not sure that its first attempt had arrived."""

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        await super().publish(outgoing, options)
        await super().publish(outgoing, options)


class _Repeats(OddBroker):
    publisher_type = _TwicePublisher


class _Unordered(OddBroker):
    subscriber_type = reordering(keyed=False)


class _OneReaderConnection(OddConnection):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._readers: dict[str, OddSubscriber] = {}

    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        reader = self._readers.get(source.name)
        if reader is not None and not reader.closed:
            raise SubscribeError(f"{source.name!r} has a reader already, and admits one; close it first")

        reader = self._readers[source.name] = await super().subscribe(source, mounting)
        return reader


class _OneReader(OddBroker):
    connection_type = _OneReaderConnection


class _ForgettingConnection(OddConnection):
    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        subscriber = await super().subscribe(source, mounting)
        while (waiting := subscriber.inner.take()) is not None:
            await waiting.ack()

        return subscriber


class _NoBacklog(OddBroker):
    connection_type = _ForgettingConnection


class _KeylessDelivery(OddDelivery):
    @property
    def key(self) -> None:
        return None

    @property
    def lane_key(self) -> None:
        return None


class _NoKeys(OddBroker):
    delivery_type = _KeylessDelivery


HONEST = (
    Honest(name="no-requeue", broker=_NoRequeue, capabilities=Capabilities(requeue=False, counts=False)),
    Honest(
        name="no-settlement",
        broker=_NoSettlement,
        capabilities=Capabilities(settlement=False, requeue=False, retry_after=False, counts=False),
    ),
    Honest(name="no-delay", broker=_NoDelay, capabilities=Capabilities(retry_after=False)),
    Honest(name="no-counts", broker=_NoCounts, capabilities=Capabilities(counts=False)),
    Honest(
        name="refuses-headers",
        broker=_RefusesHeaders,
        capabilities=Capabilities(refused_headers=frozenset({"empty", "binary"})),
    ),
    Honest(name="repeats", broker=_Repeats, capabilities=Capabilities(repeats=True)),
    Honest(name="reorders-without-key", broker=_Unordered, capabilities=Capabilities(ordered=False)),
    Honest(name="one-reader", broker=_OneReader, capabilities=Capabilities(readers=False)),
    Honest(name="no-backlog", broker=_NoBacklog, capabilities=Capabilities(backlog=False)),
    Honest(name="no-keys", broker=_NoKeys, capabilities=Capabilities(keys=False)),
)
"""Every odd broker that passes, by what is odd about it."""
