"""The order service, tested in process and on a server by the same tests."""

from __future__ import annotations

import pytest
from pystream import ack, retry, retry_after
from pystream.errors import DecodeError
from pystream_testing import TestApp

from examples.orders.books import Books
from examples.orders.service import PLACED_AT, Confirmation, Movement, Order, Topics, confirm, move_stock, receive

pytestmark = pytest.mark.anyio


@pytest.mark.promise("DEMO-15")
async def test_order_is_confirmed(t: TestApp, topics: Topics, books: Books) -> None:
    """An accepted order is charged, confirmed on the second topic, and received there."""
    order = Order(id=1, sku="pen", quantity=2)
    await t.broker().publish(topics.orders, order, headers={PLACED_AT: "0.5"})

    t.subscriber(confirm).assert_called_once(order, headers={PLACED_AT: b"0.5"})
    t.published(Confirmation, topics.confirmed).assert_called_once(Confirmation(order_id=1))
    t.subscriber(receive).assert_called_once(Confirmation(order_id=1))
    assert books.handled == books.replied == {1}
    assert len(books.latencies) == 1


@pytest.mark.promise("DEMO-15")
async def test_busy_bank_is_asked_again_at_once(t: TestApp, topics: Topics) -> None:
    """An order that meets a busy bank comes again and is confirmed then."""
    await t.broker().publish(topics.orders, Order(id=1, sku="pen", quantity=1, payment="busy"))

    assert t.subscriber(confirm).outcomes == [retry(), ack()]
    t.subscriber(receive).assert_called_once()


@pytest.mark.promise("DEMO-15")
async def test_closed_bank_is_asked_later(t: TestApp, topics: Topics) -> None:
    """An order that meets a closed bank is held, and confirmed when the delay is over."""
    await t.broker().publish(topics.orders, Order(id=1, sku="pen", quantity=1, payment="closed"))
    t.subscriber(confirm).assert_settled(retry_after(0.2))
    t.subscriber(receive).assert_not_called()

    await t.advance(0.2)
    t.subscriber(confirm).assert_settled(ack())
    t.subscriber(receive).assert_called_once(Confirmation(order_id=1))


@pytest.mark.promise("DEMO-15")
async def test_unreadable_order_is_dropped(t: TestApp, topics: Topics, books: Books) -> None:
    """An order of nothing is no order: it is dropped, and nobody is charged."""
    await t.broker().publish(topics.orders, b'{"id": 1, "sku": "pen", "quantity": 0}')

    t.subscriber(confirm).assert_settled(DecodeError)
    assert books.dropped == 1
    assert not books.handled


@pytest.mark.promise("DEMO-15")
async def test_movements_of_one_article_keep_their_order(t: TestApp, topics: Topics, books: Books) -> None:
    """Stock movements that arrive together are applied in their order per article."""
    for number in range(1, 31):
        sku = ("pen", "ink", "pad")[number % 3]
        movement = Movement(id=number, sku=sku, number=(number + 2) // 3, change=1)
        await t.broker().publish(topics.stock, movement, key=sku, wait=False)

    await t.settle()
    t.subscriber(move_stock).assert_called(times=30)
    assert books.order_violations == 0
    assert len(books.handled) == 30
