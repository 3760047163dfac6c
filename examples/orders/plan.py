"""What the demo publishes: a pure function of the number of messages.

Nine tenths come as fast as the broker takes them, the bulk: orders and stock movements in turn.
The rest, at most 1,000 orders that need no second attempt, comes at a steady pace and is timed:
the latency of a bulk would tell how long its queue is, and that of a retry how long its delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from examples.orders.service import Movement, Order

__all__ = ["LANES", "Messages", "Plan", "Planned"]

LANES = 100
"""How many messages are published at once; each article belongs to one lane of the producer."""

PACE = 500
"""Timed orders per second."""

_UNREADABLE_EVERY = 50
_FIRST_UNREADABLE = 25


@dataclass(frozen=True, slots=True)
class Planned:
    """One message.

    Attributes:
        value: An `Order`, a `Movement`, or something that is neither.
        key: The article of a movement, which keeps movements of one article in order; none for an order.
        due: Seconds from the start of its phase, for a timed order.
    """

    value: Any
    key: str | None = None
    due: float | None = None


Messages = Callable[[int], Iterator[Planned]]
"""The messages of a lane, by its number from 0."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The messages of one run; `messages` is 1 or more."""

    messages: int

    @property
    def timed(self) -> int:
        """How many orders come at a steady pace."""
        return min(1000, self.messages // 10)

    @property
    def most_handled(self) -> int:
        """How many messages can be read, and are handled if all are published."""
        return self.messages - self._unreadable

    @property
    def most_replied(self) -> int:
        """How many orders are confirmed if all are published."""
        return self.most_handled - self.bulk // 2

    @property
    def bulk(self) -> int:
        """How many messages come as fast as they can."""
        return self.messages - self.timed

    def bulk_of(self, lane: int) -> Iterator[Planned]:
        """The bulk's messages of one lane: all movements of its article are among them, in order."""
        sku = f"sku-{lane:03}"
        for pair in range(lane, (self.bulk + 1) // 2, LANES):
            yield Planned(_order(pair, sku))
            if 2 * pair + 1 < self.bulk:
                yield Planned(_movement(pair, sku), sku)

    def timed_of(self, lane: int) -> Iterator[Planned]:
        """The timed orders of one lane."""
        sku = f"sku-{lane:03}"
        for index in range(lane, self.timed, LANES):
            yield Planned(Order(id=self.bulk + index, sku=sku, quantity=1), due=index / PACE)

    @property
    def _unreadable(self) -> int:
        return len(range(_FIRST_UNREADABLE, (self.bulk + 1) // 2, _UNREADABLE_EVERY))


def _order(pair: int, sku: str) -> Any:
    """An order; of 200, five find the bank busy and five closed, two are no JSON and two no valid order."""
    if pair % _UNREADABLE_EVERY == _FIRST_UNREADABLE:
        return b"no order" if pair % 100 == 25 else {"id": 2 * pair, "sku": sku, "quantity": 0}

    if pair % 20 == 10:
        return Order(id=2 * pair, sku=sku, quantity=1, payment="busy" if pair % 40 == 10 else "closed")

    return Order(id=2 * pair, sku=sku, quantity=1 + pair % 9)


def _movement(pair: int, sku: str) -> Movement:
    return Movement(id=2 * pair + 1, sku=sku, number=pair // LANES + 1, change=-1)
