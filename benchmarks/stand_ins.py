"""A broker that costs next to nothing: what is measured over it is the runtime."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anyio
from pystream.errors import SubscriptionEnded
from pystream.protocols import Mounting, Publisher, RetryKind

from benchmarks.payload import PAYLOAD, REQUEST, REQUEST_HEADER


@dataclass(slots=True)
class ReadyDelivery:
    """A delivery whose settlements do nothing."""

    key: str
    lane_key: str
    payload: bytes = PAYLOAD
    id: str = "1"
    destination: str = "orders"
    headers: dict[str, bytes] = field(default_factory=lambda: {REQUEST_HEADER: REQUEST})
    delivery_count: int = 1
    decode_error: None = None
    retry: None = None

    async def ack(self) -> None:
        """Nothing to do."""

    reject = requeue = ack

    def release(self) -> None:
        """Nothing to do."""


_KEYS = [f"key-{number}" for number in range(97)]


def ready(count: int) -> deque[ReadyDelivery]:
    """So many deliveries, over 97 keys."""
    keys = [_KEYS[number % len(_KEYS)] for number in range(count)]
    return deque(ReadyDelivery(key, key) for key in keys)


@dataclass(frozen=True, slots=True)
class ReadySource:
    """The descriptor of `ReadyBroker`."""

    name: str = "orders"
    retry: RetryKind = "broker"
    batch_wait: None = None
    max_delay: None = None
    copies_to: str | None = "orders"
    parameters: ClassVar[dict[Any, Any]] = {}


class ReadyBroker:
    """Hands out what `take` brings, and ends when it brings nothing.

    It is its own connection and its own stream.

    Args:
        take: The next delivery, or none.
        sends: What replies are published through, or none.
    """

    source_types = (ReadySource,)
    delayed = 0

    def __init__(self, take: Callable[[], ReadyDelivery | None], sends: Publisher | None = None) -> None:
        self.take = take
        self._sends = sends

    def default_source(self, name: str) -> ReadySource:
        return ReadySource(name)

    def describe(self) -> str:
        return "ready://"

    async def connect(self, clock: object) -> ReadyBroker:
        return self

    async def subscribe(self, source: object, mounting: Mounting) -> ReadyBroker:
        return self

    def publisher(self, policy: object = None) -> Publisher | None:
        """What was given."""
        return self._sends

    async def wait(self) -> None:
        raise SubscriptionEnded("all deliveries are handled")

    def interrupt(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing is open."""


class HeldBroker(ReadyBroker):
    """The same, but before the beginning it waits where there is nothing.

    Args:
        take: The next delivery, or none.
        begin: Set once the deliveries are there.
        publisher: What replies go through.
    """

    def __init__(
        self, take: Callable[[], ReadyDelivery | None], begin: anyio.Event, publisher: Publisher | None = None
    ) -> None:
        super().__init__(take, publisher)
        self._begin = begin

    async def wait(self) -> None:
        """Once it has begun, nothing to take means the end."""
        if self._begin.is_set():
            raise SubscriptionEnded("all deliveries are handled")

        await self._begin.wait()

    def interrupt(self) -> None:
        """End the wait."""
        self._begin.set()


def from_deque(deliveries: deque[ReadyDelivery]) -> Callable[[], ReadyDelivery | None]:
    """A `take` that empties a deque, at the price of a plugin's own method."""

    def take() -> ReadyDelivery | None:
        return deliveries.popleft() if deliveries else None

    return take
