"""The service that the tests of `TestApp` run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel
from pystream import Context, Header, Out, Outcome, PyStream, ack, drop, mount, retry, retry_after, subscriber
from pystream.memory import MemoryBroker
from pystream.protocols import Broker

__all__ = ["Confirmed", "Order", "confirm", "receive", "shop"]


class Order(BaseModel):
    id: int
    sku: str = "a"


class Confirmed(BaseModel):
    order_id: int


@subscriber("orders", reply_to="orders.confirmed")
async def confirm(
    order: Order, ctx: Context, note: Annotated[str | None, Header("note")], out: Out[Order]
) -> Confirmed | Outcome:
    """What becomes of an order stands in its article."""
    match order.sku:
        case "later" if ctx.attempt == 1:
            return retry_after(5)
        case "again" if ctx.attempt < 4:
            return retry()
        case "unwanted":
            return drop()
        case "broken":
            raise ValueError("no such article")
        case "loop":
            await out.publish(order, "orders")
            return ack()

    return Confirmed(order_id=order.id)


@subscriber("orders.confirmed", workers=4)
async def receive(confirmed: Confirmed) -> None:
    """Nothing more comes of it."""


def shop(broker: Broker | None = None) -> PyStream:
    return PyStream("shop").with_broker(broker or MemoryBroker(), mount(confirm), mount(receive))
