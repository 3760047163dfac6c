"""What the tests of the memory broker share."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from pystream.memory import ConnectedMemoryBroker, MemoryBroker, MemoryDelivery, MemorySubscriber
from pystream.protocols import Key, Mounting, Outgoing

from tests.manual_clock import ManualClock

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and fail if it suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result

    coroutine.close()
    raise AssertionError(f"{coroutine} suspended")


def outgoing(
    payload: bytes = b"", *, to: str = "orders", headers: Mapping[str, bytes] | None = None, key: Key | None = None
) -> Outgoing:
    """A message to publish."""
    return Outgoing(to, payload, headers or {}, key)


async def connected(
    broker: MemoryBroker | None = None, clock: ManualClock | None = None
) -> tuple[MemoryBroker, ConnectedMemoryBroker]:
    """A broker, new if none is given, and a connection of it."""
    broker = broker or MemoryBroker("test")
    return broker, await broker.connect(clock or ManualClock())


async def subscribed(connection: ConnectedMemoryBroker, to: str = "orders", name: str = "handler") -> MemorySubscriber:
    """A subscriber for one handler."""
    return await connection.subscribe(MemoryBroker().default_source(to), Mounting(name=name))


def taken(subscriber: MemorySubscriber) -> MemoryDelivery:
    """The next delivery, which must be there."""
    delivery = subscriber.take()
    assert delivery is not None
    return delivery


def all_taken(subscriber: MemorySubscriber) -> list[MemoryDelivery]:
    """Every delivery that is there now."""
    deliveries = []
    while (delivery := subscriber.take()) is not None:
        deliveries.append(delivery)

    return deliveries


def payloads(deliveries: list[MemoryDelivery]) -> list[bytes]:
    """The bodies, in order."""
    return [delivery.payload for delivery in deliveries]
