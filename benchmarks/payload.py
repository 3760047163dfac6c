"""The message that every row handles, and the handlers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, TypeAdapter
from pystream import Context, Header, Outcome

if TYPE_CHECKING:
    from pystream.layers import CallNext  # not in every revision that is compared with


class Order(BaseModel):
    """Five fields; 99 bytes of JSON."""

    id: int
    sku: str
    price: float
    paid: bool
    tags: list[str]


def body(number: int) -> bytes:
    """The JSON of the order with that number, from 1000 to 9999 99 bytes long."""
    order = {"id": number, "sku": "bolt-M8x40-A2", "price": 12.75, "paid": True, "tags": ["red", "steel", "small"]}
    return json.dumps(order).encode()


PAYLOAD = body(4711)
REQUEST_HEADER = "x-request-id"
REQUEST = b"4711"

validate = TypeAdapter(Order).validator.validate_json
"""Bytes to an order, without the adapter's Python wrapper: what the best hand-written loop would call."""


async def typed(order: Order) -> None:
    """The handler of the model only."""


async def with_context(order: Order, context: Context) -> None:
    """The same with a context."""


async def with_header(order: Order, request: Annotated[str, Header(REQUEST_HEADER)]) -> None:
    """The same with a header."""


async def raw(payload: bytes) -> None:
    """The handler of bytes."""


async def batched(orders: list[Order]) -> None:
    """The handler of batches."""


async def passing(context: Context, call_next: CallNext) -> Outcome:
    """A layer that lets everything through."""
    return await call_next(context)


class Confirmed(BaseModel):
    """A reply."""

    order_id: int


async def replying(order: Order) -> Confirmed:
    """The handler that replies."""
    return Confirmed(order_id=order.id)
