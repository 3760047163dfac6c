"""`start`, `run_until` and `RunningApp`: who is told of what, and what comes out of the body."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest
from pystream import FAIL_FAST, FailurePolicy, PyStream, RunningApp, ServiceState, subscriber
from pystream.errors import BrokerClosed, ConfigurationError, ServiceFailed
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import (
    ASYNCIO_ONLY,
    SECONDS,
    Gate,
    Journal,
    TellingBroker,
    failed_run,
    outgoing,
    publish,
    publishing,
    soon,
)

pytestmark = pytest.mark.anyio


@subscriber("poison")
async def poison(payload: bytes) -> None:
    raise LookupError("poisoned")


def strict(journal: Journal | None = None) -> PyStream:
    """A service that stops at the first message to `poison`."""
    broker = TellingBroker(journal or Journal(), "a")
    return PyStream("shop", on_failure=FailurePolicy(error=FAIL_FAST)).with_broker(broker, poison)


@pytest.mark.promise("STOP-15")
async def test_failure_is_raised_by_shutdown_and_not_again_by_leaving() -> None:
    """Whoever calls shutdown after a fail-fast is told; the context then closes quietly."""
    with anyio.fail_after(SECONDS):
        async with strict().start() as running:
            await publish(running, b"1", to="poison")
            await running.stopping()
            with pytest.raises(ServiceFailed, match="poisoned"):
                await running.shutdown()

            with pytest.raises(ServiceFailed, match="poisoned"):
                await running.shutdown()


@pytest.mark.promise("STOP-15")
async def test_failure_is_raised_by_leaving_if_nobody_was_told() -> None:
    """Without a shutdown, leaving the context raises the failure: bare, not in a group."""
    failure, health = await failed_run(strict().start(), publishing(b"1", to="poison"))

    assert (failure.step, failure.subscription) == ("handler", "poison")
    assert isinstance(failure.__cause__, LookupError)
    assert health.state is ServiceState.FAILED


@pytest.mark.promise("STOP-15")
async def test_cancelled_shutdown_has_told_nobody() -> None:
    """A shutdown that was cancelled goes on, and the failure is still raised by leaving."""
    gate = Gate()
    app = strict().with_broker(MemoryBroker("b"), gate.handler(), label="b")

    async def body(running: RunningApp) -> None:
        await running.publisher("b").publish(b"1", "orders")
        await soon(gate.begun)
        await running.publisher(TellingBroker).publish(b"1", "poison")
        await running.stopping()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await running.shutdown()

        gate.go_on.set()

    failure, _ = await failed_run(app.start(), body)
    assert failure.subscription == "poison"
    assert gate.seen == [b"1"]


@pytest.mark.promise("STOP-16")
@pytest.mark.parametrize(
    "error",
    [
        LookupError("mine"),
        ExceptionGroup("mine", [LookupError("one")]),
        StopAsyncIteration("mine"),
        SystemExit(3),
        KeyboardInterrupt("mine"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_exception_of_the_body_comes_out_as_it_is(error: BaseException) -> None:
    """The stop is graceful, and the body's own exception is what leaves the context: the object itself, in no group."""
    journal = Journal()
    app = strict(journal)
    app.on_shutdown(journal.noting("on_shutdown"))
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # the next line looks at the object
        async with app.start():
            raise error

    assert caught.value is error
    assert journal.lines[-3:] == ["on_shutdown", "a: close poison", "a: close"]


@pytest.mark.promise("STOP-16")
async def test_exception_of_the_body_goes_before_a_failure_of_the_service() -> None:
    """When both fail, what the body raised comes out."""

    async def body(running: RunningApp) -> None:
        await publish(running, b"1", to="poison")
        await running.stopping()
        raise KeyError("mine")

    with pytest.raises(KeyError):
        await failed_run(strict().start(), body)


@pytest.mark.promise("STOP-16")
@ASYNCIO_ONLY
async def test_stray_cancellation_of_the_body_comes_out() -> None:
    """A body that awaits a task which was cancelled raises CancelledError; it is no abort, and is not swallowed."""
    begun, handled = anyio.Event(), anyio.Event()

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        begun.set()
        await anyio.sleep(0.01)
        handled.set()

    async def body(running: RunningApp) -> None:
        await running.publisher("b").publish(b"1", "orders")
        await soon(begun)
        task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        await failed_run(strict().with_broker(MemoryBroker("b"), handle, label="b").start(), body)

    assert handled.is_set()


@pytest.mark.promise("STOP-16")
@ASYNCIO_ONLY
async def test_timeout_of_the_loop_around_a_service() -> None:
    """Asyncio's own timeout around the context cancels the body, and is a TimeoutError outside."""
    journal = Journal()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02), strict(journal).start():
            await asyncio.sleep(60)

    assert journal.lines[-1] == "a: close"


@pytest.mark.promise("STOP-15")
async def test_stopping_returns_when_somebody_asked_for_a_stop() -> None:
    """stopping() waits while the service runs and returns once a stop was announced."""
    stopped = anyio.Event()

    async def watch(running: RunningApp) -> None:
        await running.stopping()
        assert running.health.state is ServiceState.SHUTTING_DOWN
        stopped.set()

    async with strict().start() as running, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, running)
        await anyio.wait_all_tasks_blocked()
        assert not stopped.is_set()
        await running.shutdown()

    assert stopped.is_set()


@pytest.mark.promise("STOP-17")
@pytest.mark.parametrize("kind", ["event", "async callable"])
async def test_run_until_ends_when_stop_returns(kind: str) -> None:
    """run_until stops for an event or an async callable, which begins only once the service runs."""
    journal = Journal()
    event = anyio.Event()
    app = strict(journal)
    app.after_startup(journal.noting("after_startup"))
    app.on_shutdown(journal.noting("on_shutdown"))

    async def stop() -> None:
        journal("stop began")

    class Waitable:
        async def wait(self) -> bool:
            journal("stop began")
            await event.wait()
            return True

    event.set()
    with anyio.fail_after(SECONDS):
        await app.run_until(Waitable() if kind == "event" else stop)

    assert journal.lines[2:] == ["after_startup", "stop began", "on_shutdown", "a: close poison", "a: close"]


@pytest.mark.promise("STOP-17")
@pytest.mark.parametrize("error", [LookupError("mine"), SystemExit(3)], ids=["error", "exit"])
async def test_run_until_raises_what_stop_raises(error: BaseException) -> None:
    """An exception of `stop` comes out as it is, after a graceful stop."""
    journal = Journal()

    async def stop() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await strict(journal).run_until(stop)

    assert caught.value is error
    assert journal.lines[-1] == "a: close"


@pytest.mark.promise("STOP-17")
@ASYNCIO_ONLY
async def test_run_until_raises_a_stray_cancellation_of_stop() -> None:
    """A `stop` that lets a cancellation of something else out has not returned: it comes out."""

    async def stop() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await strict().run_until(stop)


@pytest.mark.promise("STOP-17")
async def test_failure_ends_run_until_first() -> None:
    """A fail-fast ends run_until although `stop` has not returned, cancels it, and is raised."""
    broker = TellingBroker(Journal(), "a")
    app = PyStream("shop", on_failure=FailurePolicy(error=FAIL_FAST)).with_broker(broker, poison)
    cancelled = False

    async def stop() -> None:
        nonlocal cancelled
        await broker.connections[-1].publisher().publish(outgoing(b"1", "poison"))
        try:
            await anyio.sleep_forever()
        finally:
            cancelled = True

    with anyio.fail_after(SECONDS), pytest.raises(ServiceFailed, match="poisoned"):
        await app.run_until(stop)

    assert cancelled


@pytest.mark.promise("STOP-17")
async def test_failed_start_never_begins_stop() -> None:
    """If the service does not start, `stop` is not called."""
    app = strict()
    begun = False

    @app.after_startup
    def fail() -> None:
        raise LookupError("no ledger")

    async def stop() -> None:
        nonlocal begun
        begun = True

    with pytest.raises(ServiceFailed, match="after_startup"):
        await app.run_until(stop)

    assert not begun


@pytest.mark.promise("STOP-25")
async def test_serve_outside_the_main_thread(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    """In another thread serve does without signals: the service runs, and a failure ends it."""
    journal = Journal()
    broker = TellingBroker(journal, "a")
    app = PyStream("shop", on_failure=FailurePolicy(error=FAIL_FAST)).with_broker(broker, poison)
    raised: list[BaseException] = []

    @app.after_startup
    async def begin() -> None:
        await broker.connections[-1].publisher().publish(outgoing(b"1", "poison"))

    def run() -> None:
        try:
            anyio.run(app.serve, backend=anyio_backend[0], backend_options=anyio_backend[1])
        except ServiceFailed as failure:
            raised.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert [str(failure) for failure in raised] == ["poison failed (handler): LookupError: poisoned"]
    assert journal.lines[-1] == "a: close"


@pytest.mark.promise("STOP-18")
async def test_publisher_is_chosen_by_label_or_class() -> None:
    """RunningApp.publisher finds a broker by its label or class, or the only one."""
    received: list[bytes] = []
    done = anyio.Event()

    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        received.append(payload)
        if len(received) == 2:
            done.set()

    app = PyStream("shop").with_broker(MemoryBroker("a"), handle, label="a")
    app.with_broker(TellingBroker(Journal(), "b"), label="b")
    async with app.start() as running:
        await running.publisher("a").publish(b"1", "orders")
        await running.publisher(MemoryBroker).publish(b"2", "orders")
        await running.publisher("b").publish(b"3", "orders")
        await soon(done)

    assert received == [b"1", b"2"]


@pytest.mark.promise("STOP-18")
async def test_publisher_that_is_ambiguous_or_unknown_is_refused() -> None:
    """Without exactly one match the error says what was asked for and lists the brokers."""
    app = PyStream("shop").with_broker(MemoryBroker("a"), label="a").with_broker(MemoryBroker("b"), label="b")
    brokers = "a (memory://a), b (memory://b)"
    async with app.start() as running:
        for asked, sentence in [
            (None, f"publisher(): one broker was asked for, and 2 of the app's brokers match ({brokers})"),
            (MemoryBroker, f"publisher(): MemoryBroker was asked for, and 2 of the app's brokers match ({brokers})"),
            ("c", f"publisher(): 'c' was asked for, and 0 of the app's brokers match ({brokers})"),
        ]:
            with pytest.raises(ConfigurationError) as caught:
                running.publisher(asked)

            assert str(caught.value) == sentence

    async with PyStream("shop").start() as bare:
        with pytest.raises(ConfigurationError, match=r"0 of the app's brokers match \(none\)"):
            bare.publisher()


@pytest.mark.promise("STOP-18")
async def test_publisher_after_the_stop_is_closed() -> None:
    """A publisher that outlives the service raises BrokerClosed."""
    async with PyStream("shop").with_broker(MemoryBroker("a")).start() as running:
        publisher = running.publisher()

    with pytest.raises(BrokerClosed):
        await publisher.publish(b"1", "orders")
