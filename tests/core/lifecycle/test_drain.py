"""What a stop does with deliveries in hand and with the tasks behind them, within its budget."""

from __future__ import annotations

import itertools
import math
from typing import Any

import anyio
import pytest
from pystream import Outcome, PyStream, ServiceState, ack, by_key, mount, subscriber
from pystream._runtime.budget import Budget
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import (
    SECONDS,
    Gate,
    Journal,
    TellingBroker,
    hanging_at,
    leftover,
    publish,
    soon,
    until,
)

pytestmark = pytest.mark.anyio

FORMS = [pytest.param(1, id="default"), pytest.param(3, id="workers"), pytest.param(by_key(2), id="by_key")]


@pytest.mark.promise("STOP-8")
@pytest.mark.parametrize(
    ("workers", "in_hand"),
    [
        pytest.param(1, {1}, id="default"),
        pytest.param(3, {3}, id="workers"),
        # One running and one waiting per lane, one in the loop's hand; a lane may have no key.
        pytest.param(by_key(2), {3, 4, 5}, id="by_key"),
    ],
)
async def test_deliveries_in_hand_are_handled_and_settled(workers: Any, in_hand: set[int]) -> None:
    """What the form has taken when the stop comes is handled; the rest stays with the broker, and nothing is lost."""
    broker = MemoryBroker()
    gate = Gate()
    published = [str(number).encode() for number in range(12)]
    app = PyStream("shop").with_broker(broker, mount(gate.handler(), workers=workers))

    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            for number, payload in enumerate(published):
                await publish(running, payload, key=f"k{number % 3}")

            await soon(gate.begun)
            await anyio.wait_all_tasks_blocked()  # lanes and the loop hold what they can
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(running.shutdown)
                await anyio.wait_all_tasks_blocked()
                assert running.health.state is ServiceState.SHUTTING_DOWN
                assert gate.seen == []
                gate.go_on.set()

    assert len(gate.seen) in in_hand
    rest = await leftover(broker)
    assert sorted(gate.seen + rest) == sorted(published)


@pytest.mark.promise("STOP-8")
@pytest.mark.parametrize("workers", FORMS)
@pytest.mark.parametrize("stop_after", [1, 7, 40])
async def test_drain_law_at_any_moment(workers: Any, stop_after: int) -> None:
    """Stopped at any moment, every message was handled once and settled, or is there at the next start."""
    broker = MemoryBroker()
    seen: list[bytes] = []
    enough = anyio.Event()
    published = [str(number).encode() for number in range(60)]
    suspensions = itertools.cycle([0, 1, 0, 3])

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        for _ in range(next(suspensions)):
            await anyio.lowlevel.checkpoint()

        seen.append(payload)
        if len(seen) == stop_after:
            enough.set()

    app = PyStream("shop").with_broker(broker, mount(handle, workers=workers))
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            for number, payload in enumerate(published):
                await publish(running, payload, key=f"k{number % 5}")

            await enough.wait()

        rest = await leftover(broker)

    assert sorted(seen + rest) == sorted(published)


@pytest.mark.promise("STOP-9")
@pytest.mark.parametrize("workers", FORMS)
async def test_spent_budget_cancels_and_gives_back(workers: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Once `shutdown_timeout` is spent handlers are cancelled, and a WARNING counts, the exit is clean."""
    broker = MemoryBroker()
    begun, cleaned = anyio.Event(), 0

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        nonlocal cleaned
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned += 1

    app = PyStream("shop", shutdown_timeout=0.05).with_broker(broker, mount(handle, workers=workers))
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1", b"2", b"3", key="k")
            await soon(begun)
            await running.shutdown()

    assert cleaned >= 1
    assert running.health.state is ServiceState.STOPPED
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "WARNING",
            "shop: 1 of 1 subscriptions had not finished when the time for the shutdown was spent (orders); "
            "they are cancelled, and what they do not finish goes back unsettled",
        )
    ]
    assert sorted(await leftover(broker)) == [b"1", b"2", b"3"]


@pytest.mark.promise("STOP-9")
async def test_start_overrides_the_budget_of_the_app() -> None:
    """A `shutdown_timeout` given to the start is used in place of the app's own."""
    gate = Gate()
    app = PyStream("shop").with_broker(MemoryBroker(), gate.handler())
    with anyio.fail_after(SECONDS):
        async with app.start(shutdown_timeout=0.02) as running:
            await publish(running, b"1")
            await soon(gate.begun)

    assert gate.seen == []


@pytest.mark.promise("STOP-9")
async def test_a_part_of_the_budget_is_kept_for_tracked_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the deliveries have used up their share, a tracked task still gets its own before the brokers close."""
    monkeypatch.setattr("pystream._runtime.budget._KEPT_FOR_THE_TAIL", 0.99)
    journal, begun = Journal(), anyio.Event()
    cancelled = anyio.Event()

    @subscriber("orders")
    async def stuck(payload: bytes) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    @subscriber("bills")
    async def bills(payload: bytes) -> Outcome:
        return ack().and_after(afterwards)

    async def afterwards() -> None:
        await cancelled.wait()  # nine tenths are spent
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

        journal("continued")

    app = PyStream("shop", shutdown_timeout=3.0).with_broker(TellingBroker(journal, "a"), stuck, bills)
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1")
            await publish(running, b"2", to="bills")
            await soon(begun)

    assert journal.lines.index("continued") < journal.lines.index("a: close orders")


@pytest.mark.promise("STOP-9")
async def test_the_kept_part_is_a_tenth() -> None:
    """Deliveries may use nine tenths of the budget, tracked tasks what is left of it, a tenth at least."""
    budget = Budget(started=100.0, seconds=30.0)
    assert budget.for_deliveries == 127.0
    assert [budget.for_tasks(now) for now in (101.0, 127.0, 127.5, 128.0)] == [130.0, 130.0, 130.5, 131.0]

    unlimited = Budget.begin(None)
    assert (unlimited.for_deliveries, unlimited.for_tasks(100.0)) == (math.inf, math.inf)


@pytest.mark.promise("STOP-10")
async def test_tracked_tasks_go_on_until_the_last_hook() -> None:
    """A task that the budget did not wait for goes on while brokers close and hooks run, and may end by itself."""
    journal, begun, hook = Journal(), anyio.Event(), anyio.Event()

    async def afterwards() -> None:
        begun.set()
        await hook.wait()
        journal("continued")

    @subscriber("orders")
    async def handle(payload: bytes) -> Outcome:
        return ack().and_after(afterwards)

    app = PyStream("shop", shutdown_timeout=0.01).with_broker(TellingBroker(journal, "a"), handle)

    @app.after_shutdown
    async def last() -> None:
        hook.set()
        await until(lambda: "continued" in journal.lines)

    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1")
            await soon(begun)

    assert journal.lines[-3:] == ["a: close orders", "a: close", "continued"]


@pytest.mark.promise("STOP-10")
async def test_tracked_tasks_that_are_left_are_cancelled_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """What still runs after the last hook is cancelled, and one WARNING names all of it; the exit is clean."""
    begun = 0

    async def linger() -> None:
        nonlocal begun
        begun += 1
        await anyio.sleep_forever()

    @subscriber("orders")
    async def handle(payload: bytes) -> Outcome:
        return ack().and_after(linger)

    app = PyStream("shop", shutdown_timeout=0.01).with_broker(MemoryBroker(), handle)
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1", b"2")
            await until(lambda: begun == 2)

    name = linger.__qualname__
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"shop: cancelled at the end of the shutdown: {name}, {name}")
    ]
    assert running.health.state is ServiceState.STOPPED


@pytest.mark.promise("STOP-10")
async def test_without_a_budget_tracked_tasks_are_waited_for() -> None:
    """No `shutdown_timeout` means no limit: the brokers close only after the last task."""
    journal, begun, go_on = Journal(), anyio.Event(), anyio.Event()

    async def afterwards() -> None:
        begun.set()
        await go_on.wait()
        journal("continued")

    @subscriber("orders")
    async def handle(payload: bytes) -> Outcome:
        return ack().and_after(afterwards)

    app = PyStream("shop").with_broker(TellingBroker(journal, "a"), handle)
    with anyio.fail_after(SECONDS):
        async with app.start() as running, anyio.create_task_group() as tasks:
            await publish(running, b"1")
            await soon(begun)
            tasks.start_soon(running.shutdown)
            await anyio.wait_all_tasks_blocked()
            assert running.health.active == frozenset()
            assert "a: close orders" not in journal.lines
            go_on.set()

    assert journal.lines[-3:] == ["continued", "a: close orders", "a: close"]


@pytest.mark.promise("STOP-10")
async def test_continuation_that_exits_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """sys.exit in a tracked task is an ERROR of that task; the service goes on and its stop is complete."""
    journal = Journal()

    async def leave() -> None:
        raise SystemExit(3)

    @subscriber("orders")
    async def handle(payload: bytes) -> Outcome | None:
        if payload == b"1":
            return ack().and_after(leave)

        journal("handled")
        return None

    app = PyStream("shop").with_broker(TellingBroker(journal, "a"), handle)
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1")
            await until(lambda: caplog.records)
            await publish(running, b"2")
            await until(lambda: "handled" in journal.lines)

    assert "SystemExit" in caplog.records[0].getMessage()
    assert journal.lines[-1] == "a: close"


@pytest.mark.promise("STOP-6")
async def test_abort_hurries_what_is_closed_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation of the body during a graceful stop shortens the close that hangs, and every later one."""
    monkeypatch.setattr("pystream._runtime.shutdown.BOUND_WHEN_ABORTED", 0.02)
    journal, closing = Journal(), anyio.Event()
    app = PyStream("shop").with_broker(TellingBroker(journal, "a", hanging_at("close", closing)))
    app.after_shutdown(journal.noting("after_shutdown"))

    with anyio.fail_after(SECONDS), anyio.CancelScope() as scope:
        async with app.start() as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.shutdown)
            await soon(closing)
            scope.cancel()
            await anyio.sleep_forever()

    assert journal.lines[-2:] == ["a: close", "after_shutdown"]
    assert running.health.reason == "memory://a failed (close): TimeoutError: closing took longer than 0.02 s"


@pytest.mark.promise("STOP-6")
async def test_abort_hurries_the_closing_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that hangs while it closes does not hold up an aborted stop."""
    monkeypatch.setattr("pystream._runtime.service.BOUND_WHEN_ABORTED", 0.02)
    closing = anyio.Event()

    async def state() -> Any:
        yield
        closing.set()
        await anyio.sleep_forever()

    with anyio.fail_after(SECONDS), anyio.CancelScope() as scope:
        async with PyStream("shop", state=state).start() as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.shutdown)
            await soon(closing)
            scope.cancel()
            await anyio.sleep_forever()

    assert running.health.state is ServiceState.STOPPED
