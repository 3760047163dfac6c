"""What went wrong for users elsewhere, tried here: handlers, resources and publishers during a stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pystream import Out, Outcome, PyStream, RunningApp, State, ack, by_key, mount, retry_after
from pystream._runtime import shelter
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import Journal, leftover, publish, soon, until

pytestmark = pytest.mark.anyio

FORMS = pytest.mark.parametrize(
    "form",
    [{}, {"workers": 4}, {"workers": by_key(4)}],
    ids=["default", "workers", "by_key"],
)
"""Every form, by the settings of the mount."""


class Order:
    """A handler mid-way when the stop comes: it waits, publishes, replies, and cleans up with awaits."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.begun = anyio.Event()
        self.go_on = anyio.Event()

    async def handle(self, payload: bytes, out: Out[bytes]) -> bytes:
        try:
            self.begun.set()
            await self.go_on.wait()
            await out.publish(b"published", "notes")
            return b"replied"
        except BaseException:
            self.journal("cancelled")
            raise
        finally:
            await anyio.sleep(0.02)
            self.journal("cleaned up")


async def subscribed(broker: MemoryBroker, *names: str) -> None:
    """Have the broker keep what is published to these names from now on."""

    async def ignore(payload: bytes) -> None: ...

    async with PyStream("reader").with_broker(broker, *[mount(ignore, name) for name in names]).start():
        pass


@FORMS
@pytest.mark.promise("STOP-26")
async def test_handler_in_hand_at_a_stop_can_still_publish_reply_and_settle(form: dict[str, Any]) -> None:
    """Within the budget nothing of a handler is cancelled, and its publisher works until it is settled."""
    broker, order = MemoryBroker(), Order()
    app = PyStream("shop").with_broker(broker, mount(order.handle, "orders", reply_to="replies", **form))
    await subscribed(broker, "notes", "replies")
    async with app.start(shutdown_timeout=5) as running:
        await publish(running, b"1")
        await soon(order.begun)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.shutdown)
            await running.stopping()
            order.go_on.set()

    assert order.journal.lines == ["cleaned up"]
    assert [broker.stored(name) for name in ("notes", "replies", "orders")] == [1, 1, 0]


@FORMS
@pytest.mark.promise("STOP-27")
async def test_cancelled_handler_may_await_in_its_finally(form: dict[str, Any]) -> None:
    """With the budget spent a handler is cancelled once; what its `finally` awaits is done; the message comes back."""
    broker, order = MemoryBroker(), Order()
    app = PyStream("shop").with_broker(broker, mount(order.handle, "orders", reply_to="replies", **form))
    await subscribed(broker, "notes", "replies")
    async with app.start(shutdown_timeout=0.05) as running:
        await publish(running, b"1")
        await soon(order.begun)
        await running.shutdown()

    assert order.journal.lines == ["cancelled", "cleaned up"]
    assert [broker.stored(name) for name in ("notes", "replies")] == [0, 0]
    assert await leftover(broker) == [b"1"]


@FORMS
@pytest.mark.promise("STOP-28")
async def test_finally_without_an_end_is_cut_short(form: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a cancelled handler is bounded: a clean-up that never ends is cancelled, too."""
    monkeypatch.setattr(shelter, "CANCELLED_BOUND", 0.05)
    broker, begun, journal = MemoryBroker(), anyio.Event(), Journal()

    async def handle(payload: bytes) -> None:
        try:
            begun.set()
            await anyio.sleep_forever()
        finally:
            try:
                await anyio.sleep_forever()
            finally:
                journal("cut short")

    app = PyStream("shop").with_broker(broker, mount(handle, "orders", **form))
    async with app.start(shutdown_timeout=0) as running:
        await publish(running, b"1", b"2")
        await soon(begun)
        with anyio.fail_after(5):
            await running.shutdown()

    assert journal.lines
    assert await leftover(broker) == [b"1", b"2"]


@pytest.mark.promise("STOP-28")
async def test_cancelled_handler_has_a_second() -> None:
    """The stated time of a cancelled handler is one second."""
    assert shelter.CANCELLED_BOUND == 1.0


@FORMS
@pytest.mark.promise("STOP-27")
async def test_timeout_inside_a_handler_is_its_own(form: dict[str, Any]) -> None:
    """A cancellation by the handler's own scope gives nobody a shelter: its scope goes on cancelling."""
    broker, journal, seen = MemoryBroker(), Journal(), anyio.Event()

    async def handle(payload: bytes) -> None:
        with anyio.move_on_after(0.01):
            try:
                await anyio.sleep_forever()
            finally:
                journal("told")
                await anyio.lowlevel.checkpoint()
                journal("never here")

        seen.set()

    async with PyStream("shop").with_broker(broker, mount(handle, "orders", **form)).start() as running:
        await publish(running, b"1")
        await soon(seen)

    assert journal.lines == ["told"]
    assert broker.stored("orders") == 0


class Stock:
    """A resource that must not be used after it was closed."""

    def __init__(self) -> None:
        self.open = True
        self.uses: list[str] = []

    def use(self, by: str) -> None:
        self.uses.append(by if self.open else f"{by}: closed")


@FORMS
@pytest.mark.promise("STOP-29")
async def test_state_is_open_for_all_that_is_in_hand_at_a_stop(form: dict[str, Any]) -> None:
    """A handler, a continuation and a retry that wait at the stop all find the state open until the last hook."""
    stock, journal = Stock(), Journal()
    in_hand, continuing, go_on = anyio.Event(), anyio.Event(), anyio.Event()

    async def state() -> AsyncIterator[Stock]:
        yield stock
        stock.open = False
        journal("closed")

    async def continuation() -> None:
        continuing.set()
        await go_on.wait()
        stock.use("continuation")

    async def handle(payload: bytes, stock: State[Stock]) -> Outcome:
        if payload == b"continues":
            return ack().and_after(continuation)

        if payload == b"retries":
            stock.use("retry")
            return ack() if len([use for use in stock.uses if use == "retry"]) > 1 else retry_after(0.02)

        in_hand.set()
        await go_on.wait()
        stock.use("handler")
        return ack()

    broker = MemoryBroker()
    app = PyStream("shop", state=state).with_broker(broker, mount(handle, "orders", **form))
    app.after_shutdown(journal.noting("after_shutdown"))

    async def stop(running: RunningApp) -> None:
        await running.shutdown()

    async with app.start(shutdown_timeout=5) as running:
        await publish(running, b"continues", b"retries", b"waits")
        await soon(continuing)
        await soon(in_hand)
        await until(lambda: "retry" in stock.uses)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop, running)
            await running.stopping()
            go_on.set()

    assert {"handler", "continuation", "retry"} <= set(stock.uses)
    assert not [use for use in stock.uses if "closed" in use]
    assert journal.lines == ["after_shutdown", "closed"]
