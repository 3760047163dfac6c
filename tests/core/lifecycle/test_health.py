"""`Health`: the states of a service, its troubles, and who is told of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pystream import FailurePolicy, Health, PyStream, ServiceState, mount, subscriber
from pystream.errors import SettlementTimeout
from pystream.health import HealthBoard
from pystream.memory import MemoryBroker, MemoryDelivery
from pystream.protocols import Timer

from tests.core.lifecycle.support import (
    ASYNCIO_ONLY,
    SECONDS,
    Broken,
    Journal,
    TellingBroker,
    failed_run,
    failed_start,
    publish,
    publishing,
    until,
)
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.anyio


@subscriber("orders")
async def orders(payload: bytes) -> None: ...


ALL, NONE = frozenset({"orders"}), frozenset[str]()


class RecordingClock:
    """A manual clock that keeps the delays it was asked for."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self.now = self._clock.now
        self.advance = self._clock.advance
        self.delays: list[float] = []

    @property
    def timers(self) -> int:
        return self._clock.timers

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        self.delays.append(delay)
        return self._clock.call_later(delay, callback)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> RecordingClock:
    """The clock of every service of the test; it stands still until it is moved."""
    clock = RecordingClock()
    monkeypatch.setattr("pystream._runtime.startup.LoopClock", lambda: clock)
    return clock


@pytest.mark.promise("STOP-19")
async def test_states_of_a_life_without_failures() -> None:
    """RUNNING, then STOPPED; every subscription that was opened stays listed, and the view outlives the service."""
    app = PyStream("shop").with_broker(MemoryBroker(), orders)
    states: list[ServiceState] = []
    async with app.start() as running:
        health = running.health
        states.append(health.state)
        assert (health.started, health.active, health.reason) == (ALL, ALL, None)
        await running.shutdown()
        states.append(health.state)

    assert states == [ServiceState.RUNNING, ServiceState.STOPPED]
    assert (health.started, health.active, health.reason) == (ALL, NONE, None)
    assert repr(health) == "Health(STOPPED, active=0, started=1)"


@pytest.mark.promise("STOP-19")
async def test_health_during_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the start goes on the state is STARTING; after a failed one it is FAILED with the reason."""
    boards: list[HealthBoard] = []

    def make() -> HealthBoard:
        boards.append(HealthBoard())
        return boards[-1]

    monkeypatch.setattr("pystream._runtime.service.HealthBoard", make)
    seen: list[Any] = []
    app = PyStream("shop").with_broker(MemoryBroker(), orders)

    @app.after_startup
    def look() -> None:
        seen.append((boards[0].view.state, boards[0].view.started))
        raise LookupError("no ledger")

    failure = await failed_start(app.start())
    assert seen == [(ServiceState.STARTING, {"orders"})]
    assert boards[0].view.state is ServiceState.FAILED
    assert boards[0].view.reason == str(failure)


@pytest.mark.promise("STOP-19")
async def test_changed_returns_at_the_next_change() -> None:
    """changed() waits for a change of anything here and wakes every waiter; cancelling it changes nothing."""
    board, woken = HealthBoard(), 0

    async def watch() -> None:
        nonlocal woken
        await board.view.changed()
        woken += 1

    changes: list[Callable[[], None]] = [
        lambda: board.opened("orders", lambda: 0),
        lambda: board.phase(ServiceState.RUNNING),
        lambda: board.trouble("orders", "it rains"),
        lambda: board.trouble("orders", None),
        lambda: board.ended("orders"),
        lambda: board.phase(ServiceState.STOPPED),
    ]
    for number, change in enumerate(changes, start=1):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await board.view.changed()

            assert woken == 2 * number - 2
            change()

        assert woken == 2 * number


@pytest.mark.promise("STOP-20")
async def test_troubles_of_a_running_service_are_its_reason() -> None:
    """DEGRADED is RUNNING with a trouble; the reason names each subscription, and a failure goes before them."""
    board = HealthBoard()
    board.trouble("orders", "it rains")
    states = [board.view.state]

    board.phase(ServiceState.RUNNING)
    board.trouble("bills", "it snows")
    states.append(board.view.state)
    assert states == [ServiceState.STARTING, ServiceState.DEGRADED]
    assert board.view.reason == "orders: it rains; bills: it snows"
    assert repr(board.view) == "Health(DEGRADED, reason='orders: it rains; bills: it snows', active=0, started=0)"

    board.ended("orders")
    assert board.view.reason == "bills: it snows"

    board.trouble("bills", None)
    states.append(board.view.state)
    assert states[-1] is ServiceState.RUNNING
    assert repr(board.view) == "Health(RUNNING, active=0, started=0)"


@pytest.mark.promise("STOP-20")
@pytest.mark.parametrize("workers", [1, 3])
async def test_stream_error_degrades_until_a_delivery_comes(workers: int, clock: RecordingClock) -> None:
    """A stream that fails makes the service DEGRADED with the reason; one good delivery makes it RUNNING again."""
    broker = TellingBroker(Journal(), "a")
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    app = PyStream("shop").with_broker(broker, mount(handle, workers=workers))
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            broker.break_stream("orders", Broken("the line is cut"))
            await until(lambda: running.health.state is ServiceState.DEGRADED)
            degraded = running.health.reason
            assert degraded == "orders: the stream failed: the line is cut"
            assert running.health.active == {"orders"}

            await until(lambda: clock.timers)
            await publish(running, b"1")
            clock.advance(0.1)
            await until(lambda: seen)
            await until(lambda: running.health.reason is None)
            assert running.health.state is ServiceState.RUNNING


@pytest.mark.promise("STOP-20")
async def test_backoff_of_stream_errors(clock: RecordingClock, caplog: pytest.LogCaptureFixture) -> None:
    """The pauses after stream errors double from 0.1 s to 5 s, and begin at 0.1 s again after one good delivery."""
    broker = TellingBroker(Journal(), "a")
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    async def pause() -> float:
        """How long the present pause is; ends it."""
        await until(lambda: clock.timers == 1)
        clock.advance(clock.delays[-1] + 0.001)
        return clock.delays[-1]

    with anyio.fail_after(SECONDS):
        async with PyStream("shop").with_broker(broker, handle).start() as running:
            broker.break_stream("orders", *[Broken(str(number)) for number in range(9)])
            pauses = [await pause() for _ in range(9)]
            assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]

            await publish(running, b"1")
            await until(lambda: seen)
            broker.break_stream("orders", Broken("again"))
            assert await pause() == 0.1

    first = caplog.records[0]
    assert (first.levelname, first.getMessage()) == ("WARNING", "orders: stream failed: 0; next try in 0.1 s")


@pytest.mark.promise("STOP-20")
async def test_stop_ends_the_pause_after_a_stream_error(clock: RecordingClock) -> None:
    """A stop does not wait for the next try of a broken stream."""
    broker = TellingBroker(Journal(), "a")
    with anyio.fail_after(SECONDS):
        async with PyStream("shop").with_broker(broker, orders).start() as running:
            broker.break_stream("orders", Broken("the line is cut"))
            await until(lambda: clock.timers == 1)
            await running.shutdown()

    assert running.health.state is ServiceState.STOPPED
    assert clock.timers == 0


@pytest.mark.promise("STOP-20")
@ASYNCIO_ONLY
@pytest.mark.parametrize("workers", [1, 3])
async def test_wait_that_lets_a_cancellation_out_is_a_stream_error(workers: int) -> None:
    """A plugin's wait that raises a cancellation nobody asked for degrades the service; no loop ends in silence."""
    broker = TellingBroker(Journal(), "a")
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    app = PyStream("shop").with_broker(broker, mount(handle, workers=workers))
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            broker.break_stream("orders", asyncio.CancelledError())
            await until(lambda: running.health.state is ServiceState.DEGRADED)
            assert running.health.reason == "orders: the stream failed: the wait for deliveries was cancelled by nobody"
            await publish(running, b"1")
            await until(lambda: seen)


@pytest.mark.promise("STOP-19")
async def test_health_after_a_failure() -> None:
    """A service that failed is FAILED, and the reason is the sentence of its ServiceFailed."""

    @subscriber("poison")
    async def poison(payload: bytes) -> None:
        raise LookupError("poisoned")

    app = PyStream("shop", on_failure=FailurePolicy.strict()).with_broker(MemoryBroker(), poison)
    failure, health = await failed_run(app.start(), publishing(b"1", to="poison"))

    assert health.state is ServiceState.FAILED
    assert health.reason == str(failure) == "poison failed (handler): LookupError: poisoned"


@pytest.mark.promise("STOP-19")
async def test_settlement_failures_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health counts the settlements that failed, over all subscriptions."""
    settle = MemoryDelivery.ack

    async def lose_the_answer(self: MemoryDelivery) -> None:
        await settle(self)
        raise SettlementTimeout("no answer")

    monkeypatch.setattr(MemoryDelivery, "ack", lose_the_answer)

    @subscriber("bills")
    async def bills(payload: bytes) -> None: ...

    app = PyStream("shop").with_broker(MemoryBroker(), orders, bills)
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            assert running.health.settlement_failures == 0
            await publish(running, b"1")
            await publish(running, b"2", to="bills")
            await until(lambda: running.health.settlement_failures == 2)

    assert running.health.settlement_failures == 2


def test_health_can_be_made_anywhere() -> None:
    """A view needs no event loop."""
    assert Health().state is ServiceState.STARTING
