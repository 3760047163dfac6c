"""The stop of a service: seven steps, in one order for every trigger."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import anyio
import pytest
from pystream import FAIL_FAST, FailurePolicy, Outcome, PyStream, RunningApp, ServiceState, ack, mount, subscriber
from pystream.errors import ServiceFailed, SubscriptionEnded

from tests.core.lifecycle.support import (
    ASYNCIO_ONLY,
    SECONDS,
    Journal,
    TellingBroker,
    failed_run,
    outgoing,
    soon,
    until,
)

pytestmark = pytest.mark.anyio


class Shop:
    """A service whose every step of the stop can be told apart.

    A delivery of `orders` is in hand when the stop begins, and ends once the hook has seen
    that `bills` is still taken from.
    """

    def __init__(self) -> None:
        self.journal = journal = Journal()
        self.first = TellingBroker(journal, "a")
        self.second = TellingBroker(journal, "b")
        self.in_hand = anyio.Event()
        self.ready = anyio.Event()
        self.states: list[ServiceState] = []
        self.running: RunningApp | None = None
        go_on = anyio.Event()

        @subscriber("orders")
        async def orders(payload: bytes) -> Outcome:
            self.in_hand.set()
            await go_on.wait()
            journal("orders: handled")
            return ack().and_after(afterwards)

        async def afterwards() -> None:
            await anyio.sleep(0.01)
            journal("orders: continued")

        @subscriber("bills")
        async def bills(payload: bytes) -> None:
            journal("bills: handled")

        @subscriber("poison")
        async def poison(payload: bytes) -> None:
            raise LookupError("poisoned")

        async def state() -> AsyncIterator[None]:
            yield
            journal("state closed")

        self.app = PyStream("shop", state=state)
        strict = mount(poison, on_failure=FailurePolicy(error=FAIL_FAST))
        self.app.with_broker(self.first, orders, strict, label="a").with_broker(self.second, bills, label="b")

        @self.app.after_startup
        async def begin() -> None:
            await self.publish(b"1", "orders")
            await soon(self.in_hand)
            self.ready.set()

        @self.app.on_shutdown
        async def look() -> None:
            journal("on_shutdown")
            if self.running is not None:
                self.states.append(self.running.health.state)

            await self.publish(b"2", "bills", self.second)
            await until(lambda: "bills: handled" in journal.lines)
            go_on.set()

        self.app.after_shutdown(journal.noting("after_shutdown"))

    async def publish(self, payload: bytes, to: str, broker: TellingBroker | None = None) -> None:
        await (broker or self.first).connections[-1].publisher().publish(outgoing(payload, to))

    @property
    def stop(self) -> list[str]:
        """What the stop did."""
        return self.journal.lines[self.journal.lines.index("on_shutdown") :]


async def by_shutdown(shop: Shop) -> None:
    async with shop.app.start() as shop.running:
        await shop.running.shutdown()


async def by_leaving(shop: Shop) -> None:
    async with shop.app.start() as shop.running:
        pass


async def by_fail_fast(shop: Shop) -> None:
    async def body(running: RunningApp) -> None:
        shop.running = running
        await shop.publish(b"3", "poison")

    failure, _ = await failed_run(shop.app.start(), body)
    assert (failure.step, failure.subscription) == ("handler", "a:poison")


async def by_run_until(shop: Shop) -> None:
    await shop.app.run_until(shop.ready)


async def by_ended_subscription(shop: Shop) -> None:
    async def body(running: RunningApp) -> None:
        shop.running = running
        shop.first.break_stream("poison", SubscriptionEnded("no more"))

    failure, _ = await failed_run(shop.app.start(), body)
    assert (failure.step, failure.subscription) == ("subscription", "a:poison")


async def by_signal(shop: Shop) -> None:
    async def send() -> None:
        await shop.ready.wait()
        signal.raise_signal(signal.SIGTERM)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await shop.app.serve()


TRIGGERS = [by_shutdown, by_leaving, by_fail_fast, by_run_until, by_ended_subscription, by_signal]


@pytest.mark.promise("STOP-5")
@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_the_steps_of_a_stop_have_one_order(trigger: object) -> None:
    """Hooks first and with live brokers, then what is in hand, then its tasks, brokers in reverse, hooks, state."""
    assert callable(trigger)
    shop = Shop()
    with anyio.fail_after(SECONDS):
        await trigger(shop)

    closings = shop.stop[4:7]
    assert shop.stop[:4] == ["on_shutdown", "bills: handled", "orders: handled", "orders: continued"]
    assert sorted(closings) == ["a: close orders", "a: close poison", "b: close bills"]
    assert shop.stop[7:] == ["b: close", "a: close", "after_shutdown", "state closed"]
    assert shop.first.memory.stored("orders") == 0
    assert shop.states in ([], [ServiceState.SHUTTING_DOWN])


@pytest.mark.promise("STOP-6")
async def test_cancelled_body_aborts() -> None:
    """A cancellation of the body takes the same steps in a hurry: what is in hand is cancelled and given back."""
    journal, begun = Journal(), anyio.Event()
    broker = TellingBroker(journal, "a")

    @subscriber("orders")
    async def orders(payload: bytes) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            journal("cleaned up")

    app = PyStream("shop").with_broker(broker, orders)

    @app.on_shutdown
    async def hook() -> None:
        await anyio.sleep(0.01)
        journal("on_shutdown")

    app.after_shutdown(journal.noting("after_shutdown"))
    with anyio.fail_after(SECONDS), anyio.CancelScope() as scope:
        async with app.start() as running:
            await running.publisher().publish(b"1", "orders")
            await soon(begun)
            scope.cancel()
            await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert journal.lines[2:] == ["on_shutdown", "cleaned up", "a: close orders", "a: close", "after_shutdown"]
    assert broker.memory.stored("orders") == 1
    assert running.health.state is ServiceState.STOPPED


def stuck(broker: TellingBroker) -> tuple[PyStream, anyio.Event]:
    """A service whose handler never ends, and what is set once it has begun."""
    begun = anyio.Event()

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        begun.set()
        await anyio.sleep_forever()

    return PyStream("shop").with_broker(broker, handle), begun


@pytest.mark.promise("STOP-6")
@pytest.mark.parametrize("way", ["leaving", "run_until", "serve"])
async def test_cancellation_while_a_stop_waits_aborts(way: str) -> None:
    """A stop without a limit that waits for a handler is aborted by a cancellation from outside."""
    broker = TellingBroker(Journal(), "a")
    app, begun = stuck(broker)
    scope = anyio.CancelScope()
    stopping = anyio.Event()
    app.on_shutdown(stopping.set)

    @app.after_startup
    async def begin() -> None:
        await broker.connections[-1].publisher().publish(outgoing(b"1"))
        await soon(begun)

    async def cancel() -> None:
        await begun.wait()
        if way == "serve":
            signal.raise_signal(signal.SIGTERM)

        await soon(stopping)
        scope.cancel()

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            with scope:
                if way == "leaving":
                    async with app.start():
                        pass
                elif way == "run_until":
                    await app.run_until(begun)
                else:
                    await app.serve()

    assert scope.cancelled_caught
    assert broker.memory.stored("orders") == 1


@pytest.mark.promise("STOP-6")
@ASYNCIO_ONLY
async def test_timeout_of_the_loop_while_a_stop_waits_aborts() -> None:
    """A timeout of asyncio's own does the same to a stop that waits."""
    broker = TellingBroker(Journal(), "a")
    app, begun = stuck(broker)

    async def live() -> None:
        async with asyncio.timeout(0.05), app.start() as running:
            await running.publisher().publish(b"1", "orders")
            await soon(begun)

    with pytest.raises(TimeoutError):
        await live()

    assert broker.memory.stored("orders") == 1


@pytest.mark.promise("STOP-6")
async def test_abort_after_the_end_changes_nothing() -> None:
    """A second signal that comes when the last step is over does not make a clean stop an aborted one."""
    async with PyStream("shop").start() as running:
        await running.shutdown()
        running._service.abort(signal.SIGINT)
        await running.shutdown()

    assert running.health.state is ServiceState.STOPPED


@pytest.mark.promise("STOP-5")
async def test_stop_requested_twice_runs_its_steps_once() -> None:
    """Two concurrent shutdowns, and the leaving after them, are one stop."""
    shop = Shop()
    with anyio.fail_after(SECONDS):
        async with shop.app.start() as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.shutdown)
            tasks.start_soon(running.shutdown)

    await running.shutdown()
    assert shop.stop.count("on_shutdown") == shop.stop.count("a: close") == shop.stop.count("after_shutdown") == 1


@pytest.mark.promise("STOP-7")
async def test_end_of_a_subscription_during_the_stop_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that ends once a stop was announced neither fails the service nor is logged."""
    broker = TellingBroker(Journal(), "a")

    @subscriber("orders")
    async def orders(payload: bytes) -> None: ...

    app = PyStream("shop").with_broker(broker, orders)

    @app.on_shutdown
    async def end() -> None:
        broker.break_stream("orders", SubscriptionEnded("no more"))
        await until(lambda: not broker.subscribers["orders"].errors)

    async with app.start() as running:
        await running.shutdown()

    assert running.health.state is ServiceState.STOPPED
    assert caplog.records == []


@pytest.mark.promise("STOP-7")
@pytest.mark.parametrize("rule", ["fail", "log"])
async def test_subscription_that_ends_is_never_silent(rule: str, caplog: pytest.LogCaptureFixture) -> None:
    """The end of a stream stops the service, or, if the app says so, is an ERROR while the rest goes on."""
    broker = TellingBroker(Journal(), "a")
    seen: list[bytes] = []

    @subscriber("orders")
    async def orders(payload: bytes) -> None: ...

    @subscriber("bills")
    async def bills(payload: bytes) -> None:
        seen.append(payload)

    app = PyStream("shop", on_subscription_end="log" if rule == "log" else "fail").with_broker(broker, orders, bills)
    end = SubscriptionEnded("the topic was deleted")
    failure: ServiceFailed | None = None
    try:
        with anyio.fail_after(SECONDS):
            async with app.start() as running:
                broker.break_stream("orders", end)
                await until(lambda: running.health.active == {"bills"} or rule == "fail")
                if rule == "fail":
                    await running.stopping()
                else:
                    await running.publisher().publish(b"1", "bills")
                    await until(lambda: seen)
                    assert running.health.state is ServiceState.RUNNING
                    assert running.health.started == {"orders", "bills"}
    except ServiceFailed as error:
        failure = error

    if rule == "log":
        assert failure is None
        assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
            ("ERROR", "orders: the subscription has ended: the topic was deleted")
        ]
    else:
        assert failure is not None
        assert (failure.step, failure.subscription, failure.errors) == ("subscription", "orders", (end,))
