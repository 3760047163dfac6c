"""The app's state: every form it can be given in, opened first and closed last."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pystream import Outcome, PyStream, ServiceState, State, ack, subscriber

from tests.core.lifecycle.support import (
    SECONDS,
    Journal,
    TellingBroker,
    failed_start,
    publish,
    soon,
    until,
)

pytestmark = pytest.mark.anyio


class Stock:
    """A state that is a plain value."""


class Pool:
    """A state that is an async context manager."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def __aenter__(self) -> Stock:
        self._journal("opened")
        await anyio.lowlevel.checkpoint()
        return Stock()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await anyio.lowlevel.checkpoint()
        self._journal("closed")


def forms(journal: Journal) -> dict[str, Any]:
    """Every form of `state=`; each opens a `Stock`."""

    async def made() -> Stock:
        await anyio.lowlevel.checkpoint()
        return Stock()

    async def generator() -> AsyncIterator[Stock]:
        journal("opened")
        yield Stock()
        journal("closed")

    def plain_generator() -> Iterator[Stock]:
        journal("opened")
        yield Stock()
        journal("closed")

    return {
        "a value": Stock(),
        "a class": Stock,
        "a callable": partial(Stock),
        "an async callable": made,
        "an async context manager": Pool(journal),
        "a callable that returns one": lambda: Pool(journal),
        "an async generator function": generator,
        "a generator function": plain_generator,
        "a decorated generator function": contextlib.asynccontextmanager(generator),
    }


@pytest.mark.promise("STOP-4")
@pytest.mark.parametrize("form", list(forms(Journal())))
async def test_every_form_of_state_reaches_the_handlers(form: str) -> None:
    """A handler's State[T] is what the state opened; what was entered is left once."""
    journal = Journal()
    received: list[Stock] = []

    @subscriber("orders")
    async def handle(payload: bytes, stock: State[Stock]) -> None:
        received.append(stock)

    app = PyStream("shop", state=forms(journal)[form]).with_broker(TellingBroker(Journal(), "a"), handle)
    async with app.start() as running:
        await publish(running, b"1", b"2")
        await until(lambda: len(received) == 2)
        assert "closed" not in journal.lines

    assert isinstance(received[0], Stock)
    assert received[0] is received[1]
    assert journal.lines in ([], ["opened", "closed"])


@pytest.mark.promise("STOP-4")
async def test_state_with_a_task_group_inside() -> None:
    """A state may hold a task group over its yield: it is closed in the task that opened it, and not before the end."""
    ticks = anyio.Event()
    beating = False

    async def state() -> AsyncIterator[str]:
        nonlocal beating

        async def beat() -> None:
            nonlocal beating
            beating = True
            ticks.set()
            try:
                await anyio.sleep_forever()
            finally:
                beating = False

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            yield "state"
            tasks.cancel_scope.cancel()

    app = PyStream("shop", state=state)
    app.with_broker(TellingBroker(Journal(), "a"), label="a")
    alive: list[bool] = []
    app.after_shutdown(lambda: alive.append(beating))

    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await soon(ticks)
            await running.shutdown()

    assert alive == [True]
    assert not beating


@pytest.mark.promise("STOP-4")
async def test_state_whose_task_group_breaks_stops_the_service_in_order() -> None:
    """A background task of the state that fails is the service's failure; brokers are closed as in any stop."""
    journal = Journal()
    go = anyio.Event()

    async def state() -> AsyncIterator[str]:
        async def watch() -> None:
            await go.wait()
            raise LookupError("lost the ledger")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            yield "state"

    app = PyStream("shop", state=state).with_broker(TellingBroker(journal, "a"))
    app.on_shutdown(journal.noting("on_shutdown"))
    async with app.start() as running:
        go.set()
        with anyio.fail_after(SECONDS):
            await running.stopping()
            with pytest.raises(Exception, match="lost the ledger") as caught:
                await running.shutdown()

    assert caught.value.step == "state"  # type: ignore[attr-defined]  # it is a ServiceFailed
    assert journal.lines[-2:] == ["on_shutdown", "a: close"]


@pytest.mark.promise("STOP-4")
async def test_context_variables_of_the_state_are_those_of_the_application() -> None:
    """What the state sets in a context variable is seen by handlers and hooks."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    async def state() -> AsyncIterator[None]:
        tenant.set("acme")
        yield

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        seen.append(tenant.get())

    app = PyStream("shop", state=state).with_broker(TellingBroker(Journal(), "a"), handle)
    app.on_startup(lambda: seen.append(tenant.get()))
    async with app.start() as running:
        await publish(running, b"1")
        await until(lambda: len(seen) == 2)

    assert seen == ["acme", "acme"]


@pytest.mark.promise("STOP-4")
async def test_state_is_closed_after_the_tasks_that_may_use_it() -> None:
    """A tracked task that the stop cancels has ended before the state closes."""
    journal = Journal()
    begun = anyio.Event()

    async def state() -> AsyncIterator[None]:
        yield
        journal("state closed")

    async def linger() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)

            journal("task ended")

    @subscriber("orders")
    async def handle(payload: bytes) -> Outcome:
        return ack().and_after(linger)

    app = PyStream("shop", state=state, shutdown_timeout=0.01).with_broker(TellingBroker(Journal(), "a"), handle)
    async with app.start() as running:
        await publish(running, b"1")
        await soon(begun)

    assert journal.lines == ["task ended", "state closed"]


@pytest.mark.promise("STOP-3")
@pytest.mark.parametrize("form", ["callable", "enter", "generator without a yield"])
async def test_state_that_does_not_open_is_a_failed_start(form: str) -> None:
    """What opening the state raises is the start's failure at the step `state`, before any broker connects."""
    journal = Journal()

    def fails() -> None:
        raise LookupError("no database")

    @contextlib.asynccontextmanager
    async def enters() -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    def empty() -> Iterator[None]:
        yield from ()

    state = {"callable": fails, "enter": enters, "generator without a yield": empty}[form]
    app = PyStream("shop", state=state).with_broker(TellingBroker(journal, "a"))

    failure = await failed_start(app.start())
    assert (failure.step, failure.culprit) == ("state", "shop")
    assert journal.lines == []


@pytest.mark.promise("STOP-4")
async def test_state_that_fails_to_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An error of closing the state is an ERROR in the log and no failed stop."""

    async def state() -> AsyncIterator[None]:
        yield
        raise LookupError("no way out")

    app = PyStream("shop", state=state)
    async with app.start() as running:
        pass

    assert running.health.state is ServiceState.STOPPED
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("ERROR", "shop: closing the state failed")]


@pytest.mark.promise("STOP-4")
async def test_stop_while_the_state_opens() -> None:
    """A stop that is asked for while the state opens cuts the opening short."""
    opening = anyio.Event()

    async def state() -> None:
        opening.set()
        await anyio.sleep_forever()

    async def cancel() -> None:
        await opening.wait()
        tasks.cancel_scope.cancel()

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            async with PyStream("shop", state=state).start():
                raise AssertionError("the service started")
