"""Plain `def` handlers in a service: on every form, with their context, and when they do not return."""

from __future__ import annotations

import contextvars
import functools
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pystream import Context, FailurePolicy, Outcome, PyStream, ack, by_key, drop, retry, subscriber
from pystream._runtime import hogs, subscription
from pystream.hookspecs import Settled
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import SECONDS, leftover, publish, until
from tests.core.rig import eventually, idle, rig
from tests.core.scripted import ScriptedDelivery

pytestmark = pytest.mark.anyio

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "workers": {"workers": 3},
    "lanes": {"workers": by_key(2)},
    "one thread": {"threads": 1},
    "threads": {"threads": 2},
    "threads by key": {"threads": by_key(2)},
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS)


def deliveries(count: int) -> list[ScriptedDelivery]:
    return [ScriptedDelivery(str(number), str(number).encode(), key=str(number % 5)) for number in range(count)]


@EVERY_FORM
@pytest.mark.promise("DISPATCH-26")
async def test_a_plain_handler_runs_on_every_form(form: str) -> None:
    """On each form a `def` runs off the app's loop, and its outcomes and errors are those of any handler."""
    threads: set[str] = set()

    def handler(body: bytes, context: Context) -> Outcome | None:
        threads.add(threading.current_thread().name)
        if body == b"3":
            return retry()

        if body == b"4":
            raise ValueError("no")

        return None

    policy = FailurePolicy(error=drop())
    async with rig(handler, *deliveries(20), policy=policy, **FORMS[form]) as running:
        await running.ends(20)

    others = {f"ack {number}" for number in range(20) if number not in (3, 4)}
    assert set(running.lines) == others | {"requeue 3", "reject 4"}
    assert threading.current_thread().name not in threads
    assert all(name.startswith("orders def" if "thread" not in form else "orders thread") for name in threads)


@pytest.mark.parametrize(("settings", "size"), [({}, 1), ({"workers": 3}, 3), ({"workers": by_key(2)}, 2)])
@pytest.mark.promise("DISPATCH-21")
async def test_as_many_plain_handlers_run_at_once_as_the_form_allows(settings: dict[str, Any], size: int) -> None:
    """One for the default form, n for n workers, one per lane; and not one more."""
    running_now: list[bytes] = []
    go_on = threading.Event()

    def handler(body: bytes) -> None:
        running_now.append(body)
        go_on.wait(SECONDS)

    items = [ScriptedDelivery(str(number), key=None) for number in range(10)]
    async with rig(handler, *items, **settings) as running:
        await eventually(lambda: len(running_now) >= size)
        await idle()
        assert len(running_now) == size
        go_on.set()
        await running.ends(10)


@EVERY_FORM
@pytest.mark.promise("DISPATCH-23")
async def test_the_context_of_a_delivery_goes_through_a_plain_handler(form: str) -> None:
    """What a layer sets, the `def` sees; what the `def` sets, layer, continuation and hooks of its delivery see."""
    seen: list[tuple[str, str]] = []

    async def layer(context: Context, call_next: Any) -> Outcome:
        assert tenant.get() == "nobody"
        tenant.set(f"layer {context.id}")
        outcome: Outcome = await call_next(context)
        seen.append((f"layer {context.id}", tenant.get()))
        return outcome

    def handler(body: bytes) -> Outcome:
        before = tenant.get()
        tenant.set(f"handler {body.decode()}")
        return ack().and_after(after, body.decode(), before)

    def after(name: str, before: str) -> None:
        seen.append((f"before {name}", before))
        seen.append((f"continuation {name}", tenant.get()))

    async def hook(event: Settled) -> None:
        seen.append((f"hook {tenant.get()}", tenant.get()))

    async with rig(handler, *deliveries(6), hooks=(hook,), layers=[layer], **FORMS[form]) as running:
        await running.ends(6)
        await until(lambda: len(seen) == 24)

    told = dict(seen)
    for name in map(str, range(6)):
        assert told[f"before {name}"] == f"layer {name}"
        assert told[f"hook handler {name}"] == f"handler {name}"
        assert {told[f"layer {name}"], told[f"continuation {name}"]} == {f"handler {name}"}


@pytest.mark.promise("DISPATCH-24")
async def test_a_plain_handler_that_outlives_the_budget_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    """The stop does not wait for it: its delivery goes back, a WARNING names it, its late return is nothing."""
    broker = MemoryBroker()
    begun, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    @subscriber("orders")
    def stuck(payload: bytes) -> None:
        begun.set()
        go_on.wait(4 * SECONDS)
        ended.append(threading.current_thread().name)

    app = PyStream("shop", shutdown_timeout=0).with_broker(broker, stuck)
    try:
        with anyio.fail_after(SECONDS):
            async with app.start() as running:
                await publish(running, b"1")
                await until(begun.is_set)

        assert ended == []
        lines = [record.getMessage() for record in caplog.records if record.name == "pystream.threads"]
        assert lines == [
            "orders def 0: the handler was cancelled and has not returned; it is abandoned, "
            "and what it returns is dropped"
        ]
    finally:
        go_on.set()

    await until(lambda: ended == ["orders def 0"])
    assert await leftover(broker) == [b"1"]


@pytest.mark.promise("DISPATCH-25")
async def test_the_threads_end_with_the_subscription() -> None:
    """After the stop no thread of the handler is left."""
    names: set[str] = set()

    def handler(body: bytes) -> None:
        names.add(threading.current_thread().name)

    async with rig(handler, *deliveries(10), workers=4) as running:
        await running.ends(10)

    assert names
    await until(lambda: not names & {thread.name for thread in threading.enumerate()})


_SERVICE = """
    import threading
    import anyio
    from pystream import PyStream, subscriber
    from pystream.memory import MemoryBroker

    begun = threading.Event()

    @subscriber("orders")
    def never(payload: bytes) -> None:
        begun.set()
        threading.Event().wait()

    app = PyStream("shop", shutdown_timeout=0.1).with_broker(MemoryBroker(), never)

    async def main():
        async with app.start() as running:
            await running.publisher().publish(b"1", "orders")
            while not begun.is_set():
                await anyio.sleep(0.001)

    anyio.run(main, backend=BACKEND)
    print("stopped")
"""


@pytest.mark.promise("DISPATCH-25")
def test_a_handler_that_never_returns_does_not_keep_the_process_alive(anyio_backend: Any) -> None:
    """The service stops when its budget is spent, and the process ends, while the `def` still blocks."""
    script = dedent(_SERVICE).replace("BACKEND", repr(anyio_backend[0]))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "stopped\n"
    assert "orders def 0: the handler was cancelled and has not returned" in ended.stderr


@pytest.mark.parametrize(
    ("settings", "warnings"), [({}, 1), ({"workers": 2}, 1), ({"threads": 1}, 0), ({"threads": 2}, 0)]
)
@pytest.mark.promise("DISPATCH-33")
async def test_only_handlers_on_the_loop_of_the_app_are_told(
    settings: dict[str, Any], warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler on the app's loop is sampled; one on dedicated threads holds up nobody else and is never told."""
    monkeypatch.setattr(hogs, "_LIMIT", -1.0)  # so that every step is too long

    async def handler(body: bytes) -> None: ...

    with caplog.at_level(logging.WARNING, "pystream.subscription"):
        async with rig(handler, *deliveries(2048), **settings) as running:
            await running.ends(2048)

    assert [record.getMessage().split(" for ")[0] for record in caplog.records] == [
        "orders: a handler step holds the loop"
    ] * warnings


@pytest.mark.promise("DISPATCH-34")
@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_plain_handler_on_the_pool_does_not_hold_the_loop(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What blocks in a `def` blocks its thread, and is no step on the loop; the same in an `async def` is told."""
    clocks = threading.local()  # each thread's own: what blocks one takes no time of the others

    def timer() -> float:
        return getattr(clocks, "now", 0.0)

    def blocking(body: bytes) -> None:
        clocks.now = timer() + 0.1

    async def blocking_the_loop(body: bytes) -> None:
        blocking(body)

    monkeypatch.setattr(subscription, "Hogs", functools.partial(hogs.Hogs, timer=timer))
    handler: Callable[..., Any] = blocking if kind == "def" else blocking_the_loop
    with caplog.at_level(logging.WARNING, "pystream.subscription"):
        async with rig(handler, *deliveries(1024)) as running:
            await running.ends(1024)

    assert len(caplog.records) == (0 if kind == "def" else 1)
