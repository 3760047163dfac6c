"""The order service: three handlers, as a user of pystream writes them.

Orders are validated, charged and confirmed on a second topic; confirmations are received
there; stock movements are applied in their order per article.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from anyio.lowlevel import checkpoint
from pydantic import BaseModel, PositiveInt
from pystream import Context, Header, Outcome, PyStream, State, by_key, mount, retry, retry_after, subscriber
from pystream.protocols import Broker, SubscriptionSource

from examples.orders.books import Books

__all__ = [
    "PLACED_AT",
    "Confirmation",
    "Movement",
    "Order",
    "Topics",
    "confirm",
    "make_app",
    "move_stock",
    "receive",
    "source",
]

PLACED_AT = "placed-at"
"""The header of an order that is timed: when it was sent, by the monotonic clock of this machine."""

SUBSCRIPTION = "orders-demo"


class Order(BaseModel):
    """What a customer wants; `payment` says how the bank answers the first time."""

    id: int
    sku: str
    quantity: PositiveInt
    payment: Literal["accepted", "busy", "closed"] = "accepted"


class Confirmation(BaseModel):
    """The reply to an order."""

    order_id: int


class Movement(BaseModel):
    """The `number`-th change of one article's stock, from 1."""

    id: int
    sku: str
    number: PositiveInt
    change: int


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the three topics."""

    orders: str
    confirmed: str
    stock: str

    @classmethod
    def of(cls, run: str) -> Topics:
        """Topics of one run, so that runs on one server do not meet."""
        return cls(*(f"orders-demo-{run}-{name}" for name in ("orders", "confirmed", "stock")))


@subscriber(workers=128)
async def confirm(
    order: Order, ctx: Context, placed_at: Annotated[float | None, Header(PLACED_AT)], books: State[Books]
) -> Confirmation | Outcome:
    """Charge an order and confirm it; what cannot be charged now is tried again."""
    if order.payment == "busy" and ctx.attempt == 1:
        return retry()

    if order.payment == "closed" and ctx.attempt == 1:
        return retry_after(0.2)

    books.order_confirmed(order.id, placed_at)
    return Confirmation(order_id=order.id)


@subscriber(workers=8)
async def receive(confirmation: Confirmation, books: State[Books]) -> None:
    """Take note of a confirmation, as the customer's side would."""
    books.confirmation_arrived(confirmation.order_id)


@subscriber(workers=by_key(8))
async def move_stock(movement: Movement, books: State[Books]) -> None:
    """Apply a stock movement; those of one article in their order, those of others meanwhile."""
    for _ in range(movement.number * 7 % 5):  # stands for I/O that takes a different time for each
        await checkpoint()

    books.stock_moved(movement.id, movement.sku, movement.number)


def source(broker: Broker, topic: str) -> SubscriptionSource | str:
    """Where a handler reads: on Pulsar a named subscription (SHARED by default), elsewhere the topic's name."""
    if not broker.describe().startswith("pulsar"):
        return topic

    from pystream_pulsar import PulsarSubscription

    return PulsarSubscription(topic, SUBSCRIPTION)


def make_app(broker: Broker, topics: Topics, books: Books) -> PyStream:
    """The service over any broker."""
    app = PyStream("orders", version="1.0.0", state=books).with_broker(
        broker,
        mount(confirm, source(broker, topics.orders), reply_to=topics.confirmed),
        mount(receive, source(broker, topics.confirmed)),
        mount(move_stock, source(broker, topics.stock)),
    )
    app.post_settle(books.settled)
    return app
