"""What goes wrong in a stop never skips the rest of it."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pystream import FAIL_FAST, FailurePolicy, PyStream, RunningApp, ServiceState, by_key, mount, subscriber
from pystream.errors import ServiceFailed, WorkerDied

from tests.core.lifecycle.support import (
    ASYNCIO_ONLY,
    SECONDS,
    Journal,
    TellingBroker,
    failed_run,
    hanging_at,
    publish,
    publishing,
    raising_at,
)

pytestmark = pytest.mark.anyio

HOOKS = ["on_shutdown", "after_shutdown"]
CLOSED = ["a: close orders", "b: close", "a: close"]


@subscriber("orders")
async def orders(payload: bytes) -> None: ...


def service(journal: Journal, first: TellingBroker | None = None, second: TellingBroker | None = None) -> PyStream:
    app = PyStream("shop", hook_timeout=0.05)
    app.with_broker(first or TellingBroker(journal, "a"), orders, label="a")
    app.with_broker(second or TellingBroker(journal, "b"), label="b")
    return app


@pytest.mark.promise("STOP-11")
@pytest.mark.parametrize("error", [LookupError("no ledger"), SystemExit(3)], ids=["error", "exit"])
@pytest.mark.parametrize("hook", HOOKS)
async def test_failing_hook_is_logged_and_skips_nothing(
    hook: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop hook that raises is an ERROR that names it; the other hooks and steps follow, and the stop is clean."""
    journal = Journal()
    app = service(journal)

    def fail() -> None:
        raise error

    getattr(app, hook)(journal.noting("the other hook"))
    getattr(app, hook)(fail)  # stop hooks run in reverse: this one first
    async with app.start() as running:
        await running.shutdown()

    assert "the other hook" in journal.lines
    assert [line for line in journal.lines if line in CLOSED] == CLOSED
    assert running.health.state is ServiceState.STOPPED
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", f"the hook {__name__}.{fail.__qualname__} failed: {type(error).__name__}")
    ]
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


@pytest.mark.promise("STOP-11")
@ASYNCIO_ONLY
@pytest.mark.parametrize("hook", HOOKS)
async def test_hook_that_awaits_a_cancelled_task_skips_nothing(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """A hook that lets the cancellation of a task of its own out has failed, and the stop goes on."""
    journal = Journal()
    app = service(journal)

    async def clean_up() -> None:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        task.cancel()
        await task

    getattr(app, hook)(clean_up)
    async with app.start() as running:
        await running.shutdown()

    assert [line for line in journal.lines if line in CLOSED] == CLOSED
    assert [r.getMessage().split()[-1] for r in caplog.records] == ["CancelledError"]


@pytest.mark.promise("STOP-11")
@pytest.mark.parametrize("hook", HOOKS)
async def test_hanging_hook_is_cancelled_after_hook_timeout(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """All hooks of a step have `hook_timeout` together; then the running one is cancelled, and an ERROR names it."""
    journal = Journal()
    app = service(journal)

    async def hang() -> None:
        await anyio.sleep_forever()

    getattr(app, hook)(journal.noting("skipped"))
    getattr(app, hook)(hang)
    with anyio.fail_after(SECONDS):
        async with app.start() as running:
            await running.shutdown()

    assert "skipped" not in journal.lines
    assert [line for line in journal.lines if line in CLOSED] == CLOSED
    assert running.health.state is ServiceState.STOPPED
    name = f"{__name__}.{hang.__qualname__}"
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", f"the hook {name} was cancelled after 0.05 s; later ones of its step were skipped")
    ]


@pytest.mark.promise("STOP-11")
async def test_hooks_have_ten_seconds_by_default() -> None:
    """Each step of stop hooks has 10 s unless the app says otherwise."""
    assert PyStream("shop")._definition(None).hook_timeout == 10.0


@pytest.mark.promise("STOP-12")
@pytest.mark.parametrize("error", [LookupError("no way out"), SystemExit(3), TimeoutError("asked too long")])
@pytest.mark.parametrize("at", ["a: close orders", "b: close", "a: close"])
async def test_failing_close_skips_nothing_and_fails_the_service(at: str, error: BaseException) -> None:
    """A subscription or broker that fails to close is the ServiceFailed of the stop; the rest is closed too."""
    journal = Journal()
    name, step = at.split(": ")
    broken = TellingBroker(journal, name, raising_at(step, error))
    app = service(journal, *((broken, None) if name == "a" else (None, broken)))
    app.after_shutdown(journal.noting("after_shutdown"))

    with pytest.raises(ServiceFailed) as caught:
        async with app.start() as running:
            pass

    assert journal.lines[3:] == [*CLOSED, "after_shutdown"]
    assert (caught.value.step, caught.value.errors) == ("close", (error,))
    assert caught.value.culprit == ("a:orders" if step == "close orders" else f"{name} (memory://{name})")
    assert running.health.state is ServiceState.FAILED
    assert running.health.reason == str(caught.value)


@pytest.mark.promise("STOP-12")
@ASYNCIO_ONLY
async def test_close_that_lets_a_cancellation_out_skips_nothing() -> None:
    """A broker whose close raises a cancellation nobody asked for has failed to close."""
    journal = Journal()
    app = service(journal, second=TellingBroker(journal, "b", raising_at("close", asyncio.CancelledError())))

    with pytest.raises(ServiceFailed, match="CancelledError"):
        async with app.start():
            pass

    assert journal.lines[3:] == CLOSED


@pytest.mark.promise("STOP-13")
@pytest.mark.parametrize("at", ["a: close orders", "b: close", "a: close"])
async def test_hanging_close_is_bounded(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that does not return is cancelled at its bound and reported; the others follow."""
    monkeypatch.setattr("pystream._runtime.shutdown.BROKER_BOUND", 0.05)
    journal = Journal()
    name, step = at.split(": ")
    hanging = TellingBroker(journal, name, hanging_at(step))
    app = service(journal, *((hanging, None) if name == "a" else (None, hanging)))

    with anyio.fail_after(SECONDS), pytest.raises(ServiceFailed) as caught:
        async with app.start():
            pass

    assert journal.lines[3:] == CLOSED
    assert caught.value.step == "close"
    assert str(caught.value.errors[0]) == "closing took longer than 0.05 s"


@pytest.mark.promise("STOP-13")
async def test_a_close_has_ten_seconds() -> None:
    """The bound of each close is 10 s."""
    from pystream._runtime import shutdown

    assert shutdown.BROKER_BOUND == 10.0


@pytest.mark.promise("STOP-14")
async def test_later_failures_join_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """A fail-fast and two failing closes are one ServiceFailed: the first is the cause, all are in `errors`."""
    journal = Journal()
    handler_error, first, second = LookupError("poisoned"), LookupError("first"), LookupError("second")

    @subscriber("poison")
    async def poison(payload: bytes) -> None:
        raise handler_error

    app = PyStream("shop", on_failure=FailurePolicy(error=FAIL_FAST))
    app.with_broker(TellingBroker(journal, "a", raising_at("close", first)), poison, label="a")
    app.with_broker(TellingBroker(journal, "b", raising_at("close", second)), label="b")

    failure, _ = await failed_run(app.start(), lambda running: running.publisher("a").publish(b"1", "poison"))

    assert (failure.step, failure.subscription) == ("handler", "a:poison")
    assert failure.errors == (handler_error, second, first)
    assert failure.__cause__ is handler_error
    assert len(pickle.loads(pickle.dumps(failure)).errors) == 3  # noqa: S301  # our own bytes
    said = [r.getMessage() for r in caplog.records if r.name == "pystream.service"]
    assert said == ["shop: b (memory://b) failed too (close)", "shop: a (memory://a) failed too (close)"]


FORMS = [pytest.param(1, id="default"), pytest.param(3, id="workers"), pytest.param(by_key(2), id="by_key")]


@pytest.mark.promise("STOP-14")
@pytest.mark.parametrize("workers", FORMS)
async def test_loop_that_breaks_fails_the_service(workers: Any) -> None:
    """What a loop raises is one ServiceFailed with the error itself; of a worker with one that names the worker."""
    journal, error = Journal(), RuntimeError("the driver broke")
    broker = TellingBroker(journal, "a")
    app = PyStream("shop").with_broker(broker, mount(orders, workers=workers))

    async def body(running: RunningApp) -> None:
        broker.subscribers["orders"].take_error = error
        await publish(running, b"1")

    failure, _ = await failed_run(app.start(), body)
    assert (failure.step, failure.subscription) == ("loop", "orders")
    if workers == 3:
        (died,) = failure.errors
        assert isinstance(died, WorkerDied)
        assert str(died).startswith("orders worker ")
        assert str(died).endswith(" has ended by RuntimeError: the driver broke")
        assert died.__cause__ is error
    else:
        assert set(failure.errors) == {error}

    assert journal.lines[-2:] == ["a: close orders", "a: close"]
    assert broker.memory.stored("orders") == 1


@pytest.mark.promise("STOP-14")
@pytest.mark.parametrize("workers", FORMS)
async def test_handler_that_exits_fails_the_service(workers: Any) -> None:
    """sys.exit in a handler is a fail-fast in every form: the stop is complete, the delivery is given back."""
    journal = Journal()

    @subscriber("orders")
    async def leave(payload: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        raise SystemExit(3)

    broker = TellingBroker(journal, "a")
    app = PyStream("shop").with_broker(broker, mount(leave, workers=workers))
    failure, _ = await failed_run(app.start(), publishing(b"1"))

    assert (failure.subscription, str(failure.errors[0])) == ("orders", "3")
    assert journal.lines[-2:] == ["a: close orders", "a: close"]
    assert broker.memory.stored("orders") == 1


@pytest.mark.promise("STOP-12")
async def test_failed_start_whose_unwinding_fails_keeps_the_first_cause() -> None:
    """A close that fails while a failed start unwinds joins its errors; the start's own stays the cause."""
    journal = Journal()
    refused, stuck = LookupError("refused"), LookupError("stuck")
    app = service(
        journal,
        TellingBroker(journal, "a", raising_at("close", stuck)),
        TellingBroker(journal, "b", raising_at("connect", refused)),
    )
    with pytest.raises(ServiceFailed) as caught:
        async with app.start():
            raise AssertionError("the service started")

    assert (caught.value.step, caught.value.errors) == ("connect", (refused, stuck))
