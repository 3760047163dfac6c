"""What the demo publishes: a pure function of the number of messages.

Nine tenths come as fast as the broker takes them, the bulk: three orders for each stock movement.
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
"""How many messages are on their way at once: each lane of the producer sends one after the other."""

ARTICLES = 20
"""The first lanes send movements, each those of one article; the others send orders."""

PACE = 500
"""Timed orders per second."""

_ORDER_LANES = LANES - ARTICLES
_UNREADABLE_EVERY = 50
_FIRST_UNREADABLE = 25


@dataclass(frozen=True, slots=True)
class Planned:
    """One message.

    Attributes:
        value: An `Order`, a `Movement`, or something that is neither.
        key: The article of a movement, by which its order is kept; none for an order.
        due: Seconds from the start of its phase, for a timed order.
    """

    value: Any
    key: str | None = None
    due: float | None = None


Messages = Callable[[int], Iterator[Planned]]
"""The messages of a lane, by its number from 0."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The messages of one run.

    Attributes:
        messages: How many in all, 1 or more.
    """

    messages: int

    @property
    def timed(self) -> int:
        """How many orders come at a steady pace."""
        return min(1000, self.messages // 10)

    @property
    def bulk(self) -> int:
        """How many messages come as fast as they can."""
        return self.messages - self.timed

    @property
    def movements(self) -> int:
        """How many of the bulk are stock movements."""
        return self.bulk // 4

    @property
    def unreadable(self) -> int:
        """How many of the bulk's orders are none."""
        return len(range(_FIRST_UNREADABLE, self.bulk - self.movements, _UNREADABLE_EVERY))

    def bulk_of(self, lane: int) -> Iterator[Planned]:
        """The bulk's messages of one lane."""
        if lane < ARTICLES:
            return self._movements_of(lane)

        return (Planned(_order(number)) for number in range(lane - ARTICLES, self.bulk - self.movements, _ORDER_LANES))

    def timed_of(self, lane: int) -> Iterator[Planned]:
        """The timed orders of one lane."""
        for number in range(lane, self.timed, LANES):
            yield Planned(Order(id=self.bulk + number, sku=_sku(number), quantity=1), due=number / PACE)

    def _movements_of(self, article: int) -> Iterator[Planned]:
        first_id, sku = self.bulk - self.movements, _sku(article)
        for number, index in enumerate(range(article, self.movements, ARTICLES), start=1):
            yield Planned(Movement(id=first_id + index, sku=sku, number=number, change=-1), key=sku)


def _order(number: int) -> Any:
    """An order; of 200, five find the bank busy and five closed, two are no JSON and two no valid order."""
    if number % _UNREADABLE_EVERY == _FIRST_UNREADABLE:
        return b"no order" if number % 100 < 50 else {"id": number, "sku": _sku(number), "quantity": 0}

    order = Order(id=number, sku=_sku(number), quantity=1 + number % 9)
    match number % 40:
        case 10:
            order.payment = "busy"
        case 30:
            order.payment = "closed"

    return order


def _sku(number: int) -> str:
    return f"sku-{number % ARTICLES:02}"
