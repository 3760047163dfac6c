"""Settlements: each made once, at once, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import inf, nan
from typing import Any, TypeAlias

import anyio
import pytest
from pystream.errors import BrokerClosed, SettlementError, SettlementRejected
from pystream.memory import MemoryDelivery
from pystream.protocols import Delivery, RetryAfter

from tests.core.memory.support import all_taken, at_once, connected, outgoing, payloads, subscribed, taken
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.anyio

Settle: TypeAlias = Callable[[MemoryDelivery], Coroutine[Any, Any, None]]

_SETTLEMENTS: dict[str, Settle] = {
    "ack": lambda delivery: delivery.ack(),
    "reject": lambda delivery: delivery.reject(),
    "requeue": lambda delivery: delivery.requeue(),
    "retry_after": lambda delivery: delivery.retry_after(1),
}
_each = pytest.mark.parametrize("settle", _SETTLEMENTS.values(), ids=_SETTLEMENTS)


@pytest.mark.promise("MEMORY-16")
async def test_a_delivery_shows_the_message() -> None:
    """Identity, destination, body, count and the constants of this broker are there as plain values."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    for body in (b"0", b""):
        await connection.publisher().publish(outgoing(body))

    shown: list[Delivery] = [*all_taken(subscriber)]
    assert [delivery.id for delivery in shown] == ["orders:0", "orders:1"]
    assert [delivery.payload for delivery in shown] == [b"0", b""]
    assert {delivery.destination for delivery in shown} == {"orders"}
    assert {(delivery.delivery_count, delivery.decode_error, delivery.retry) for delivery in shown} == {(1, None, None)}
    assert isinstance(shown[0], RetryAfter)
    assert "b'0'" not in repr(shown[0])


@pytest.mark.promise("MEMORY-9")
@_each
async def test_a_settlement_never_suspends(settle: Settle) -> None:
    """On the owner's loop every settlement is made before its coroutine first yields."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    at_once(settle(taken(subscriber)))


@pytest.mark.promise("MEMORY-8")
@_each
@pytest.mark.parametrize("again", _SETTLEMENTS.values(), ids=_SETTLEMENTS)
async def test_a_second_settlement_raises(settle: Settle, again: Settle) -> None:
    """Whatever settled a delivery first, the second settlement raises and changes nothing."""
    clock = ManualClock()
    broker, connection = await connected(clock=clock)
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    delivery = taken(subscriber)
    await settle(delivery)
    before = (subscriber.delayed, broker.stored("orders"))
    with pytest.raises(SettlementError, match="orders:0 was settled or released before"):
        await again(delivery)

    assert (subscriber.delayed, broker.stored("orders")) == before
    clock.advance(1)
    assert len(all_taken(subscriber)) == before[1]


@pytest.mark.promise("MEMORY-8")
async def test_an_old_delivery_does_not_settle_its_redelivery() -> None:
    """A settled delivery stays settled while the same message is in hand again."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    old = taken(subscriber)
    await old.requeue()
    again = taken(subscriber)
    with pytest.raises(SettlementError):
        await old.ack()

    assert broker.stored("orders") == 1
    await again.ack()
    assert broker.stored("orders") == 0


@pytest.mark.promise("MEMORY-8")
@_each
async def test_a_settlement_after_the_close_raises(settle: Settle) -> None:
    """A delivery given back at the close cannot be settled: the subscription has it again."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    delivery = taken(subscriber)
    with anyio.move_on_after(0):
        await subscriber.close()

    with pytest.raises(BrokerClosed, match="orders:0 was given back when subscription 'handler' closed"):
        await settle(delivery)

    assert taken(await subscribed(connection)).delivery_count == 1


@pytest.mark.promise("MEMORY-3")
@pytest.mark.parametrize("name", ["ack", "reject"])
async def test_what_is_done_does_not_come_back(name: str) -> None:
    """An acknowledged or rejected message is not handed out again, now or at the next start."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    for body in (b"0", b"1", b"2"):
        await connection.publisher().publish(outgoing(body))

    deliveries = all_taken(subscriber)
    await _SETTLEMENTS[name](deliveries[1])
    assert subscriber.take() is None
    for delivery in deliveries:
        delivery.release()

    await subscriber.close()
    assert payloads(all_taken(await subscribed(connection))) == [b"0", b"2"]


@pytest.mark.promise("MEMORY-4")
async def test_a_requeued_message_takes_turns_with_unseen_ones() -> None:
    """It comes behind the next unseen message, its count raised each time, and starves nobody."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    for body in (b"a", b"b", b"c", b"d"):
        await connection.publisher().publish(outgoing(body))

    order = []
    for _ in range(8):
        delivery = taken(subscriber)
        order.append((delivery.payload, delivery.delivery_count))
        if delivery.payload == b"a":
            await delivery.requeue()
        else:
            await delivery.ack()

    assert order == [
        (b"a", 1),
        (b"b", 1),
        (b"a", 2),
        (b"c", 1),
        (b"a", 3),
        (b"d", 1),
        (b"a", 4),
        (b"a", 5),
    ]


@pytest.mark.promise("MEMORY-4")
async def test_unseen_messages_do_not_hold_back_requeued_ones() -> None:
    """While new messages keep coming, requeued ones still get every second turn, first in first out."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    publisher = connection.publisher()
    for number in range(3):
        await publisher.publish(outgoing(b"old%d" % number))

    for delivery in all_taken(subscriber):
        await delivery.requeue()

    order = []
    for number in range(6):
        await publisher.publish(outgoing(b"new%d" % number))
        order.append(taken(subscriber).payload)

    assert order == [b"new0", b"old0", b"new1", b"old1", b"new2", b"old2"]


@pytest.mark.promise("MEMORY-5")
async def test_a_delay_is_kept_by_the_clock() -> None:
    """A delayed message is held and counted until its time, then comes with its count raised."""
    clock = ManualClock()
    _, connection = await connected(clock=clock)
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(b"1"))
    await taken(subscriber).retry_after(5)
    clock.advance(4.999)
    assert (subscriber.delayed, subscriber.take()) == (1, None)
    clock.advance(0.001)
    assert subscriber.delayed == 0
    delivery = taken(subscriber)
    assert (delivery.payload, delivery.delivery_count) == (b"1", 2)


@pytest.mark.promise("MEMORY-8")
@pytest.mark.parametrize("delay", [-1, -0.001, inf, nan])
async def test_a_delay_that_cannot_be_kept_settles_nothing(delay: float) -> None:
    """A negative or endless delay is rejected, and the delivery can still be settled."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    delivery = taken(subscriber)
    with pytest.raises(SettlementRejected, match="0 or more"):
        await delivery.retry_after(delay)

    assert subscriber.delayed == 0
    await delivery.ack()
    assert broker.stored("orders") == 0


@pytest.mark.promise("MEMORY-6", "MEMORY-8")
async def test_a_released_delivery_comes_back_at_the_next_start() -> None:
    """Releasing settles nothing, may be repeated, and refuses a later settlement."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(b"1"))
    delivery = taken(subscriber)
    delivery.release()
    delivery.release()
    assert subscriber.take() is None
    with pytest.raises(SettlementError):
        await delivery.ack()

    await subscriber.close()
    again = taken(await subscribed(connection))
    assert (again.payload, again.delivery_count) == (b"1", 1)


@pytest.mark.promise("MEMORY-8")
async def test_releasing_a_settled_delivery_changes_nothing() -> None:
    """A release after an acknowledgement does not bring the message back."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    delivery = taken(subscriber)
    await delivery.ack()
    delivery.release()
    await subscriber.close()
    assert broker.stored("orders") == 0
