"""The start of a service: the order of its steps, and what a failed one leaves behind: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest
from pystream import FailurePolicy, PyStream, ServiceState, State, subscriber
from pystream.errors import ConnectError, PluginError, SubscribeError

from tests.core.lifecycle.support import (
    ASYNCIO_ONLY,
    SECONDS,
    Gate,
    Journal,
    Step,
    TellingBroker,
    failed_start,
    hanging_at,
    outgoing,
    raising_at,
    soon,
)

pytestmark = pytest.mark.anyio


@subscriber("orders")
async def orders(payload: bytes) -> None: ...


@subscriber("bills")
async def bills(payload: bytes) -> None: ...


def service(journal: Journal, *, first: Step | None = None, second: Step | None = None) -> PyStream:
    """Two brokers, two handlers on the first and one on the second, a state and every hook."""

    async def state() -> AsyncIterator[str]:
        journal("state opened")
        yield "the state"
        journal("state closed")

    app = PyStream("shop", version="1", state=state)
    app.with_broker(TellingBroker(journal, "a", first), orders, bills, label="a")
    app.with_broker(TellingBroker(journal, "b", second), orders, label="b")
    app.on_startup(journal.noting("on_startup"))
    app.after_startup(journal.noting("after_startup"))
    app.on_shutdown(journal.noting("on_shutdown"))
    app.after_shutdown(journal.noting("after_shutdown"))
    return app


STEPS = [
    "state opened",
    "on_startup",
    "a: connect",
    "b: connect",
    "a: subscribe orders",
    "a: subscribe bills",
    "b: subscribe orders",
    "after_startup",
]


@pytest.mark.promise("STOP-1")
async def test_the_steps_of_a_start_have_one_order() -> None:
    """State, on_startup, brokers and subscriptions as registered, after_startup; only then does it run."""
    journal = Journal()
    async with service(journal).start() as running:
        assert journal.lines == STEPS
        assert running.health.state is ServiceState.RUNNING


@pytest.mark.promise("STOP-2")
@pytest.mark.parametrize(
    ("at", "opened", "closed"),
    [
        ("a: connect", 3, []),
        ("b: connect", 4, ["a: close"]),
        ("a: subscribe orders", 5, ["b: close", "a: close"]),
        ("a: subscribe bills", 6, ["a: close orders", "b: close", "a: close"]),
        ("b: subscribe orders", 7, ["a: close orders", "a: close bills", "b: close", "a: close"]),
    ],
)
async def test_failed_step_of_a_broker_unwinds_in_reverse(at: str, opened: int, closed: list[str]) -> None:
    """What was open is closed, subscriptions before brokers and these in reverse; no hook of the stop runs."""
    journal = Journal()
    broker, step = at.split(": ")
    error = (ConnectError if step == "connect" else SubscribeError)("the gate is shut")
    fault = raising_at(step, error)
    app = service(journal, first=fault if broker == "a" else None, second=fault if broker == "b" else None)

    failure = await failed_start(app.start())

    assert journal.lines[:opened] == STEPS[:opened]
    ended = journal.lines[opened:]
    assert ended[-1] == "state closed"
    assert sorted(ended[:-1]) == sorted(closed)  # subscriptions are closed side by side
    assert [line for line in ended if line in ("a: close", "b: close")] == [c for c in closed if "close " not in c]
    assert failure.step == step.split()[0]
    assert failure.errors == (error,)
    assert failure.__cause__ is error


@pytest.mark.promise("STOP-3")
@pytest.mark.parametrize(
    ("step", "culprit", "subscription"),
    [("connect", "a (memory://a)", None), ("subscribe", "a:orders", "a:orders"), ("subscribe", "a:bills", "a:bills")],
)
async def test_failed_start_names_step_and_culprit(step: str, culprit: str, subscription: str | None) -> None:
    """One ServiceFailed says which step failed and whose it was."""
    at = step if step == "connect" else f"subscribe {culprit.removeprefix('a:')}"
    failure = await failed_start(service(Journal(), first=raising_at(at, LookupError("no such thing"))).start())

    assert (failure.step, failure.culprit, failure.subscription) == (step, culprit, subscription)
    assert str(failure) == f"{culprit} failed ({step}): LookupError: no such thing"


@pytest.mark.promise("STOP-2", "STOP-3")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("hook", "opened"), [("on_startup", 2), ("after_startup", 8)])
async def test_failed_hook_of_the_start_unwinds(hook: str, opened: int, asynchronous: bool) -> None:
    """A start hook that raises, plain or async, refuses the start, and later hooks of its step do not run."""
    journal = Journal()
    app = service(journal)

    def plain() -> None:
        raise LookupError("no ledger")

    async def suspended() -> None:
        await anyio.lowlevel.checkpoint()
        raise LookupError("no ledger")

    getattr(app, hook)(suspended if asynchronous else plain)
    getattr(app, hook)(journal.noting("too late"))

    failure = await failed_start(app.start())

    assert failure.step == hook
    assert failure.culprit.endswith("suspended" if asynchronous else "plain")
    assert journal.lines[:opened] == STEPS[:opened]
    assert not {"on_shutdown", "after_shutdown", "too late"} & set(journal.lines)
    assert journal.lines[-1] == "state closed"


@pytest.mark.promise("STOP-2")
async def test_failed_start_drains_the_loops_before_the_brokers_close() -> None:
    """A delivery in hand when after_startup fails is handled and settled before its broker closes."""
    journal, gate = Journal(), Gate()
    gate = Gate(journal)
    broker = TellingBroker(journal, "a")
    app = PyStream("shop").with_broker(broker, gate.handler())

    @app.after_startup
    async def fail() -> None:
        await broker.connections[-1].publisher().publish(outgoing(b"1"))
        await soon(gate.begun)
        gate.go_on.set()
        raise LookupError("no ledger")

    await failed_start(app.start())

    assert journal.lines[-3:] == ["handled 1", "a: close orders", "a: close"]
    assert broker.memory.stored("orders") == 0


@pytest.mark.promise("STOP-2")
async def test_handler_that_fails_fast_during_after_startup_fails_the_start() -> None:
    """A loop's failure cuts after_startup short; the start fails with it, and the body never runs."""
    broker = TellingBroker(Journal(), "a")

    @subscriber("orders")
    async def strict(payload: bytes) -> None:
        raise LookupError("no ledger")

    app = PyStream("shop", on_failure=FailurePolicy.strict()).with_broker(broker, strict)

    @app.after_startup
    async def wait_for_ever() -> None:
        await broker.connections[-1].publisher().publish(outgoing(b"1"))
        await anyio.sleep_forever()

    failure = await failed_start(app.start())
    assert (failure.step, failure.culprit) == ("handler", "orders")


@pytest.mark.promise("STOP-2")
@pytest.mark.parametrize("step", ["connect", "subscribe orders", "subscribe bills"])
async def test_stop_cuts_a_hanging_start_short(step: str) -> None:
    """Cancelling a start that hangs in any step ends it, with what was open closed."""
    journal, reached = Journal(), anyio.Event()
    app = service(journal, second=None, first=hanging_at(step, reached))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_at, reached, tasks.cancel_scope)
            async with app.start():
                raise AssertionError("the service started")

    assert journal.lines[-2:] == ["a: close" if step != "connect" else "a: connect", "state closed"]
    assert "on_shutdown" not in journal.lines


@pytest.mark.promise("STOP-2")
@ASYNCIO_ONLY
async def test_stray_cancellation_in_a_start_step_is_a_failed_start() -> None:
    """A connect that raises a cancellation nobody asked for fails the start instead of ending it in silence."""
    journal = Journal()
    failure = await failed_start(service(journal, second=raising_at("connect", asyncio.CancelledError())).start())

    assert (failure.step, failure.culprit) == ("connect", "b (memory://b)")
    assert journal.lines[-2:] == ["a: close", "state closed"]


@pytest.mark.promise("STOP-3")
async def test_plugin_that_is_none_is_refused_before_anything_opens() -> None:
    """A plugin that cannot be loaded fails the start at the step `plugins`, before the state opens."""
    journal = Journal()
    app = PyStream("shop", plugins=[object()], state=lambda: journal("state opened"))
    failure = await failed_start(app.with_broker(TellingBroker(journal, "a")).start())

    assert (failure.step, failure.culprit) == ("plugins", "shop")
    assert isinstance(failure.__cause__, PluginError)
    assert journal.lines == []


@pytest.mark.promise("STOP-3")
async def test_exit_in_a_start_step_is_a_failed_start() -> None:
    """A hook that calls sys.exit fails the start like any other; nothing stays open."""
    journal = Journal()
    app = service(journal)

    @app.after_startup
    def leave() -> None:
        raise SystemExit(3)

    failure = await failed_start(app.start())
    assert failure.step == "after_startup"
    assert journal.lines[-1] == "state closed"


@pytest.mark.promise("STOP-3")
async def test_state_that_does_not_fit_a_handler_is_a_failed_subscribe() -> None:
    """An open state of another class than State[T] asks for is refused, naming the handler and both classes."""

    @subscriber("orders")
    async def wants(payload: bytes, stock: State[dict]) -> None: ...  # type: ignore[type-arg]  # a bare class

    app = PyStream("shop", state=lambda: 5).with_broker(TellingBroker(Journal(), "a"), wants)

    failure = await failed_start(app.start())
    assert failure.step == "subscribe"
    assert "State[dict]" in str(failure)
    assert "int" in str(failure)


async def cancel_at(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
