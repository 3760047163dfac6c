"""One run over the memory broker: its figures, and that they can be bad."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pystream import FailurePolicy, Outcome, State, ack, by_key, retry_after
from pystream.memory import MemoryBroker

from examples.orders.books import Books
from examples.orders.plan import Plan
from examples.orders.report import Report
from examples.orders.run import MakeApp, Run
from examples.orders.service import Confirmation, Movement, Order, make_app
from tests.demo.faulty import service

pytestmark = pytest.mark.anyio

MESSAGES = 400  # 90 movements, 270 orders of which 5 are unreadable and 13 retried, 40 timed orders
SWALLOWED = 60


async def swallow_order(order: Order, books: State[Books]) -> Confirmation | None:
    if order.id == SWALLOWED:
        return None

    books.order_confirmed(order.id, None)
    return Confirmation(order_id=order.id)


async def confirm_unhandled(order: Order, books: State[Books]) -> Confirmation:
    if order.id != SWALLOWED:
        books.order_confirmed(order.id, None)

    return Confirmation(order_id=order.id)


async def swallow_reply(order: Order, books: State[Books]) -> Confirmation | None:
    books.order_confirmed(order.id, None)
    return None if order.id == SWALLOWED else Confirmation(order_id=order.id)


async def swallow_confirmation(confirmation: Confirmation, books: State[Books]) -> None:
    if confirmation.order_id != SWALLOWED:
        books.confirmation_arrived(confirmation.order_id)


async def swallow_movement(movement: Movement, books: State[Books]) -> None:
    if movement.number != 2 or movement.sku != "sku-07":
        books.stock_moved(movement.id, movement.sku, movement.number)


async def confirm_twice(order: Order, books: State[Books]) -> Confirmation:
    books.order_confirmed(order.id, None)
    books.order_confirmed(order.id, None)
    return Confirmation(order_id=order.id)


async def move_anyhow(movement: Movement, books: State[Books]) -> None:
    for _ in range(movement.number * 7 % 5):
        await anyio.lowlevel.checkpoint()

    books.stock_moved(movement.id, movement.sku, movement.number)


async def go(make_app: MakeApp, **options: Any) -> Report:
    run = Run(broker=MemoryBroker(), plan=Plan(MESSAGES), make_app=make_app, **{"patience": 0.5, **options})
    with anyio.fail_after(30):
        return await run.go()


@pytest.mark.promise("DEMO-1")
async def test_every_message_is_accounted_for() -> None:
    """A run counts what was published, handled, replied, retried and dropped; nothing is lost or out of order."""
    report = await go(make_app)
    assert (report.published, report.handled, report.dropped) == (400, 395, 5)
    assert (report.replied, report.retried) == (270 - 5 + 40, 13)
    assert (report.lost, report.left, report.duplicates, report.order_violations) == (0, 0, 0, 0)
    assert report.is_good
    assert report.rate > 0
    assert report.p50_ms is not None
    assert report.p99_ms is not None
    assert 0 < report.p50_ms <= report.p99_ms


@pytest.mark.promise("DEMO-2")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"confirm": swallow_order}, id="order"),
        pytest.param({"confirm": confirm_unhandled}, id="handling"),
        pytest.param({"confirm": swallow_reply}, id="reply"),
        pytest.param({"receive": swallow_confirmation}, id="confirmation"),
        pytest.param({"move_stock": swallow_movement}, id="movement"),
    ],
)
async def test_one_swallowed_message_is_lost(fault: dict[str, Any]) -> None:
    """A message that is acknowledged but does not reach its end counts as lost, whichever it is."""
    report = await go(service(**fault))
    assert report.lost == 1
    assert not report.is_good


@pytest.mark.promise("DEMO-2")
async def test_unreadable_messages_that_are_not_dropped_are_lost() -> None:
    """An unreadable message has reached its end only when it was dropped."""
    report = await go(service(on_failure=FailurePolicy(decode=ack())))
    assert (report.dropped, report.lost) == (0, 5)


@pytest.mark.promise("DEMO-3")
async def test_without_lanes_the_order_is_violated() -> None:
    """The same movements by plain workers are found out of order, and a run with lanes is not."""
    assert (await go(service(move_stock=move_anyhow, workers=by_key(8)))).order_violations == 0

    report = await go(service(move_stock=move_anyhow, workers=8))
    assert report.order_violations > 0
    assert report.lost == 0
    assert not report.is_good


@pytest.mark.promise("DEMO-4")
async def test_duplicates_are_counted_and_allowed() -> None:
    """A message handled twice is a duplicate, and the run is good all the same."""
    report = await go(service(confirm=confirm_twice))
    assert report.duplicates == 270 - 5 + 40
    assert report.is_good


@pytest.mark.promise("DEMO-5")
async def test_a_stop_finishes_what_is_published() -> None:
    """A stop by the user ends the publishing; what is published is still handled, and nothing is lost or left."""

    async def stop_at_once(confirmation: Confirmation, books: State[Books]) -> None:
        run.stop()
        books.confirmation_arrived(confirmation.order_id)

    run = Run(broker=MemoryBroker(), plan=Plan(5000), make_app=service(receive=stop_at_once))
    with anyio.fail_after(30):
        report = await run.go()

    assert 0 < report.published < 5000
    assert report.handled + report.dropped == report.published
    assert (report.lost, report.left) == (0, 0)
    assert report.p50_ms is None


@pytest.mark.promise("DEMO-5")
async def test_what_a_stop_does_not_wait_for_is_left() -> None:
    """What is unfinished when the time of a stop is over is left on the broker, and not lost."""

    async def not_now(movement: Movement) -> Outcome:
        run.stop()
        return retry_after(60)

    run = Run(broker=MemoryBroker(), plan=Plan(MESSAGES), make_app=service(move_stock=not_now), stop_within=0)
    with anyio.fail_after(30):
        report = await run.go()

    assert report.left > 0
    assert report.lost == 0
    assert report.is_good


@pytest.mark.promise("DEMO-5")
async def test_a_stop_hides_no_loss() -> None:
    """What a handler has swallowed is lost, also in a run that the user has stopped."""

    async def swallow(confirmation: Confirmation) -> None:
        run.stop()

    run = Run(broker=MemoryBroker(), plan=Plan(MESSAGES), make_app=service(receive=swallow), patience=0.2)
    with anyio.fail_after(30):
        report = await run.go()

    assert report.left == 0
    assert report.lost > 0
