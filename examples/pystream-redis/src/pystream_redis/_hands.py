"""`Hands`: what the service has taken and neither settled nor released."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pystream.errors import BrokerClosed, SettlementError
from pystream.signal import Signal

from pystream_redis.delivery import RedisDelivery

__all__ = ["Hands"]


class Hands:
    """The deliveries in the service's hands. Everything but `emptied` and `close` from any thread.

    Args:
        name: What the subscription is called in errors.
    """

    __slots__ = ("_closed", "_emptied", "_held", "_lock", "_name", "_waiting")

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: set[RedisDelivery] = set()
        # Held while one looks at `_closed` and settles: nothing is accepted that is then not sent.
        self._lock = threading.Lock()
        self._emptied = Signal()
        self._waiting = False
        self._closed = False

    def add(self, delivery: RedisDelivery) -> None:
        """It was taken."""
        self._held.add(delivery)

    def settle(self, delivery: RedisDelivery, settlement: Callable[[], object]) -> None:
        """Take it out, and make its settlement, which must not wait.

        Raises:
            SettlementError: It was settled or released before; `BrokerClosed` if it was
                given back.
        """
        with self._lock:
            if delivery not in self._held:
                raise self._refusal(delivery)

            self._take_out(delivery)
            settlement()

    def release(self, delivery: RedisDelivery) -> None:
        """Take it out, if it is there."""
        with self._lock:
            if delivery in self._held:
                self._take_out(delivery)

    async def emptied(self) -> None:
        """Return once nothing is there. One task.

        Cancel safety: cancelling it changes nothing.
        """
        self._waiting = True
        while self._held:
            await self._emptied.wait()

    def close(self) -> int:
        """Refuse every settlement from here on; how many deliveries were there still."""
        with self._lock:
            self._closed = True
            left, self._held = self._held, set()

        return len(left)

    def _take_out(self, delivery: RedisDelivery) -> None:
        self._held.remove(delivery)
        delivery.done = True
        if self._waiting:
            self._emptied.wake_from_thread()

    def _refusal(self, delivery: RedisDelivery) -> Exception:
        if self._closed and not delivery.done:
            return BrokerClosed(f"{delivery.id} was given back when {self._name!r} closed; it comes back")

        return SettlementError(f"{delivery.id} was settled or released before; a delivery is settled once")
