"""A context variable that a layer sets is seen by everything that runs for its delivery, on every form (case C07)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from pystream import BatchContext, Context, MainRuntime, Outcome, PyStream, ack, by_key, mount, retry_after
from pystream.hookspecs import Settled
from pystream.layers import CallNext
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import publish, until
from tests.core.rig import eventually, idle, rig
from tests.core.scripted import ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio

request_id: ContextVar[str] = ContextVar("request_id", default="none")

ON_THE_LOOP = [{}, {"workers": 3}, {"workers": by_key(3)}]
ON_THREADS = [{"threads": 1}, {"threads": 2}, {"threads": by_key(2)}]
COUNT = 12


class Seen:
    """Who has seen which request id, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by: dict[str, list[str]] = defaultdict(list)

    def note(self, who: str) -> None:
        with self._lock:
            self.by[who].append(request_id.get())

    async def note_later(self, who: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.note(who)


async def tracing(ctx: Context, call_next: CallNext) -> Outcome:
    """Sets the request id of a delivery."""
    await anyio.lowlevel.checkpoint()
    request_id.set(ctx.payload.decode())
    return await call_next(ctx)


async def tracing_batches(ctx: BatchContext, call_next: CallNext) -> Outcome:
    """Sets the request ids of a batch."""
    request_id.set("+".join(item.payload.decode() for item in ctx.contexts))
    return await call_next(ctx)


async def reusing(ctx: Context | BatchContext, call_next: CallNext) -> Outcome:
    """Passes; it would see what an earlier delivery has left behind."""
    assert request_id.get() != "none"
    return await call_next(ctx)


def asynchronous(seen: Seen, expected: Callable[[Any], str]) -> Callable[..., Any]:
    async def handle(body: bytes, ctx: Context, main: MainRuntime) -> Outcome:
        assert expected(body) == request_id.get()
        await anyio.lowlevel.checkpoint()
        seen.note("handler")
        await main.run(seen.note_later, "MainRuntime.run")
        await main.run(seen.note, "MainRuntime.run, def")
        await main.spawn(seen.note_later, "MainRuntime.spawn")
        return _followed(seen, ctx)

    return handle


def plain(seen: Seen, expected: Callable[[Any], str]) -> Callable[..., Any]:
    def handle(body: bytes, ctx: Context) -> Outcome:
        assert expected(body) == request_id.get()
        seen.note("handler")
        return _followed(seen, ctx)

    return handle


def _followed(seen: Seen, ctx: Any) -> Outcome:
    ctx.after_settle(seen.note, "context hook")
    ctx.after_ack(seen.note_later, "async context hook")
    return ack().and_after(seen.note_later, "continuation")


FOLLOWING = {"handler", "context hook", "async context hook", "continuation", "post_settle", "async post_settle"}
ON_THE_APPS_LOOP = {"MainRuntime.run", "MainRuntime.run, def", "MainRuntime.spawn"}


def _service(seen: Seen, mounted: Any) -> PyStream:
    app = PyStream("shop").with_broker(MemoryBroker(), mounted)

    @app.post_settle
    def hook(event: Settled) -> None:
        seen.note("post_settle")

    @app.post_settle
    async def later(event: Settled) -> None:
        await seen.note_later("async post_settle")

    return app


@pytest.mark.promise("LAYER-15")
@pytest.mark.parametrize("handler", [asynchronous, plain], ids=["async def", "def"])
@pytest.mark.parametrize("form", [*ON_THE_LOOP, *ON_THREADS], ids=repr)
async def test_everything_of_a_delivery_sees_what_a_layer_has_set(
    form: dict[str, Any], handler: Callable[..., Any]
) -> None:
    """Handler, continuation, context hooks, `post_settle` and what runs on the app's loop: always their own."""
    seen = Seen()
    handle = handler(seen, bytes.decode)
    app = _service(seen, mount(handle, "orders", name="orders", layers=[tracing, reusing], **form))
    expected = FOLLOWING | (ON_THE_APPS_LOOP if handler is asynchronous else set())
    bodies = [f"request {number}" for number in range(COUNT)]
    async with app.start() as running:
        for number, body in enumerate(bodies):
            await publish(running, body.encode(), key=str(number))

        await until(lambda: all(len(seen.by[who]) == COUNT for who in expected))

    assert {who: sorted(found) for who, found in seen.by.items()} == dict.fromkeys(expected, sorted(bodies))
    assert request_id.get() == "none"


@pytest.mark.promise("LAYER-15")
@pytest.mark.parametrize("form", [{}, {"workers": 2}, {"threads": 2}], ids=repr)
async def test_everything_of_a_batch_sees_what_a_layer_has_set(form: dict[str, Any]) -> None:
    """The same for batches: the layer is called once for each, and its variable is the batch's."""
    seen = Seen()

    async def handle(bodies: list[bytes], ctx: BatchContext, main: MainRuntime) -> Outcome:
        assert request_id.get() == "+".join(body.decode() for body in bodies)
        await main.run(seen.note_later, "MainRuntime.run")
        seen.note("handler")
        return _followed(seen, ctx)

    once = ("handler", "continuation", "context hook", "async context hook", "MainRuntime.run")
    mounted = mount(handle, "orders", layers=[tracing_batches, reusing], batch=3, batch_wait=0.01, **form)
    async with _service(seen, mounted).start() as running:
        await publish(running, *(str(number).encode() for number in range(COUNT)))
        await until(lambda: all(len(seen.by[who]) == COUNT for who in ("post_settle", "async post_settle")))
        batches = sorted(seen.by["handler"])
        await until(lambda: all(len(seen.by[who]) == len(batches) for who in once))

    assert sorted("+".join(batches).split("+"), key=int) == [str(number) for number in range(COUNT)]
    assert {who: sorted(seen.by[who]) for who in once} == dict.fromkeys(once, batches)
    for who in ("post_settle", "async post_settle"):
        assert sorted(seen.by[who]) == sorted(batch for batch in batches for _ in batch.split("+"))


@pytest.mark.promise("LAYER-15")
@pytest.mark.parametrize("source", [ScriptedSource(), ScriptedSource(retry="in_place")], ids=["held", "in place"])
async def test_what_follows_a_delay_sees_what_a_layer_has_set(source: ScriptedSource) -> None:
    """Also where a timer of the service holds the delivery, or it is run again in place."""
    seen = Seen()

    async def handle(body: bytes, ctx: Context) -> Outcome:
        if source.retry == "in_place" and ctx.attempt == 1:
            return retry_after(5)

        seen.note("handler")
        _followed(seen, ctx)
        ctx.after_settle(seen.note_later, "async context hook")
        outcome = retry_after(5) if source.retry == "broker" else ack()
        return outcome.and_after(seen.note_later, "continuation")

    hooks = (lambda: seen.note("post_settle"),)
    items = [ScriptedDelivery(str(number), f"request {number}".encode()) for number in range(3)]
    async with rig(handle, *items, source=source, hooks=hooks, layers=[tracing], workers=3) as running:
        await eventually(lambda: running.clock.timers == 3)
        running.clock.advance(5)
        await running.ends(3)
        await idle()

    expected = [f"request {number}" for number in range(3)]
    who = {"handler", "context hook", "async context hook", "continuation", "post_settle"}
    assert {name: sorted(set(found)) for name, found in seen.by.items()} == dict.fromkeys(who, expected)
