"""A service that is started again, and two of them at once."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from pystream import FAIL_FAST, FailurePolicy, PyStream, ServiceState, by_key, mount, subscriber
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import (
    SECONDS,
    Gate,
    Journal,
    TellingBroker,
    failed_run,
    failed_start,
    leftover,
    publish,
    publishing,
    soon,
    until,
)

pytestmark = pytest.mark.anyio


def handled(seen: list[bytes], count: int) -> bool:
    return len(seen) == count


@pytest.mark.promise("STOP-21")
async def test_app_can_be_started_again() -> None:
    """One app runs twice in a row: hooks, state, brokers and handlers anew, and nothing of the first run."""
    journal = Journal()
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    app = PyStream("shop", state=lambda: journal("state")).with_broker(TellingBroker(journal, "a"), handle)
    app.on_startup(journal.noting("on_startup"))
    app.after_shutdown(journal.noting("after_shutdown"))
    lives: list[list[str]] = []
    for number, payload in enumerate((b"1", b"2"), start=1):
        with anyio.fail_after(SECONDS):
            async with app.start() as running:
                await publish(running, payload)
                await until(partial(handled, seen, number))

        assert running.health.state is ServiceState.STOPPED
        lives.append(journal.lines.copy())
        journal.lines.clear()

    assert lives[0] == lives[1]
    assert lives[0][:2] == ["state", "on_startup"]
    assert seen == [b"1", b"2"]


@pytest.mark.promise("STOP-21")
async def test_app_can_be_started_again_after_a_failure() -> None:
    """A failure is the run's, not the app's."""
    fails = True

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        if fails:
            raise LookupError("poisoned")

    broker = MemoryBroker()
    app = PyStream("shop", on_failure=FailurePolicy(error=FAIL_FAST)).with_broker(broker, handle)
    with anyio.fail_after(SECONDS):
        await failed_run(app.start(), publishing(b"1"))
        fails = False
        async with app.start() as running:
            await until(lambda: broker.stored("orders") == 0)
            assert running.health.reason is None


@pytest.mark.promise("STOP-21")
async def test_two_apps_in_one_loop() -> None:
    """Two services in one loop share nothing: one stops, and fails, while the other goes on."""
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    @subscriber("orders")
    async def poison(payload: bytes) -> None:
        raise LookupError("poisoned")

    good = PyStream("good").with_broker(MemoryBroker(), handle)
    bad = PyStream("bad", on_failure=FailurePolicy(error=FAIL_FAST)).with_broker(MemoryBroker(), poison)
    with anyio.fail_after(SECONDS):
        async with good.start() as running:
            _, failed = await failed_run(bad.start(), publishing(b"1"))
            assert failed.state is ServiceState.FAILED
            assert running.health.state is ServiceState.RUNNING
            await publish(running, b"2")
            await until(lambda: seen)

    assert seen == [b"2"]


@pytest.mark.promise("STOP-21")
async def test_app_that_runs_already_is_refused_by_its_broker() -> None:
    """A second start beside the first fails at the subscription that is open, and the first is not disturbed."""
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    app = PyStream("shop").with_broker(MemoryBroker(), handle)
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            failure = await failed_start(app.start())
            assert (failure.step, failure.subscription) == ("subscribe", "orders")

            await publish(running, b"1")
            await until(lambda: seen)
            assert running.health.state is ServiceState.RUNNING


@pytest.mark.promise("STOP-22")
@pytest.mark.parametrize("workers", [1, 3, by_key(2)], ids=["default", "workers", "by_key"])
async def test_delivery_in_hand_at_the_stop_is_settled_once(workers: object) -> None:
    """A handler in flight at the stop ends, its delivery is settled, and the next start does not run it again."""
    broker = MemoryBroker()
    gate = Gate()
    settled: list[object] = []
    app = PyStream("shop").with_broker(broker, mount(gate.handler(), workers=workers))  # type: ignore[arg-type]  # int or by_key
    app.post_settle(lambda event: settled.append(event.outcome.kind))
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1", key="k")
            await soon(gate.begun)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(running.shutdown)
                await anyio.wait_all_tasks_blocked()
                gate.go_on.set()

        async with app.start() as running:
            await publish(running, b"2", key="k")
            await until(lambda: len(gate.seen) == 2)

    assert gate.seen == [b"1", b"2"]
    assert settled == ["ack", "ack"]
    assert broker.stored("orders") == 0


@pytest.mark.promise("STOP-22")
async def test_what_was_left_unsettled_comes_back() -> None:
    """What the stop cancelled, and what was published while no service ran, is there at the next start."""
    broker = MemoryBroker()
    gate = Gate()
    app = PyStream("shop", shutdown_timeout=0.0).with_broker(broker, gate.handler())
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await publish(running, b"1", b"2")
            await soon(gate.begun)

        async with PyStream("publisher").with_broker(broker).start() as publisher:
            await publish(publisher, b"3")

        assert gate.seen == []
        assert await leftover(broker) == [b"1", b"2", b"3"]


@pytest.mark.promise("STOP-22")
async def test_delivery_of_a_fail_fast_comes_back() -> None:
    """The delivery that stopped the service is unsettled: the next start hands it out again."""

    @subscriber("orders")
    async def poison(payload: bytes) -> None:
        raise LookupError("poisoned")

    broker = MemoryBroker()
    app = PyStream("shop", on_failure=FailurePolicy(error=FAIL_FAST)).with_broker(broker, poison)
    with anyio.fail_after(SECONDS):
        await failed_run(app.start(), publishing(b"1", b"2"))
        assert await leftover(broker) == [b"1", b"2"]
