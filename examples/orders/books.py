"""What was sent and what came of it: the service writes here, the report reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pystream.hookspecs import Settled

__all__ = ["Books", "Sent"]


@dataclass(slots=True)
class Sent:
    """The messages whose publish the broker has confirmed, by their ids."""

    orders: set[int] = field(default_factory=set)
    movements: set[int] = field(default_factory=set)
    unreadable: int = 0

    @property
    def count(self) -> int:
        """How many, the unreadable ones included."""
        return len(self.orders) + len(self.movements) + self.unreadable


@dataclass(slots=True)
class Books:
    """What the service has done; the state of the app.

    Attributes:
        handled: The ids of the orders and movements whose handler has reached its end.
        replied: The ids of the orders whose confirmation has arrived on the second topic.
        retried: How many deliveries were given back for another attempt.
        dropped: How many deliveries were dropped, because they could not be read.
        duplicates: How many orders, movements and confirmations came once more after that.
        order_violations: How many movements were applied after a later one of their article.
        latencies: Seconds from the publish of a timed order to the end of its handler.
        last_activity: When anything of this happened last, by the monotonic clock.
    """

    handled: set[int] = field(default_factory=set)
    replied: set[int] = field(default_factory=set)
    retried: int = 0
    dropped: int = 0
    duplicates: int = 0
    order_violations: int = 0
    latencies: list[float] = field(default_factory=list)
    last_activity: float = field(default_factory=time.monotonic)
    _latest: dict[str, int] = field(default_factory=dict)

    def order_confirmed(self, order_id: int, placed_at: float | None) -> None:
        """An order is done; its confirmation is about to be published."""
        if self._is_new(order_id, self.handled) and placed_at is not None:
            self.latencies.append(self.last_activity - placed_at)

    def confirmation_arrived(self, order_id: int) -> None:
        """A confirmation has come on the second topic."""
        self._is_new(order_id, self.replied)

    def stock_moved(self, movement_id: int, sku: str, number: int) -> None:
        """A movement was applied. One that comes again is a duplicate, whatever came between."""
        if not self._is_new(movement_id, self.handled):
            return

        latest = self._latest.get(sku, 0)
        if number < latest:
            self.order_violations += 1
        else:
            self._latest[sku] = number

    def settled(self, event: Settled) -> None:
        """A delivery was settled; the hook `post_settle`."""
        self.last_activity = time.monotonic()
        if event.error is not None:
            return

        if event.outcome.kind == "retry":
            self.retried += 1
        elif event.outcome.kind == "drop":
            self.dropped += 1

    def missing(self, sent: Sent) -> int:
        """How many of the sent messages have not reached their end.

        The end of an order is its confirmation on the second topic, that of a movement its
        handler's end, that of an unreadable message that it was dropped.
        """
        orders = len(sent.orders - (self.handled & self.replied))
        return orders + len(sent.movements - self.handled) + max(0, sent.unreadable - self.dropped)

    def _is_new(self, item: int, known: set[int]) -> bool:
        self.last_activity = time.monotonic()
        if item in known:
            self.duplicates += 1
            return False

        known.add(item)
        return True
