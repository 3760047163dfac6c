"""Context variables: a delivery has its own, and everything that runs for it sees them."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from pystream import Outcome, ack, retry_after
from pystream.hookspecs import Settled

from tests.core.rig import eventually, rig
from tests.core.scripted import ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
release: contextvars.ContextVar[str] = contextvars.ContextVar("release")


async def _checkpoint() -> None:
    await anyio.lowlevel.checkpoint()


async def _timeout() -> None:
    with anyio.move_on_after(60):
        await anyio.lowlevel.checkpoint()

    with anyio.move_on_after(0):
        await anyio.sleep_forever()


async def _task_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
        tasks.start_soon(anyio.sleep, 0)


async def _nested() -> None:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_timeout)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def _no_suspension() -> None: ...


_WAYS = [_no_suspension, _checkpoint, _timeout, _task_group, _nested]


@pytest.mark.promise("HANDLER-8")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("way", _WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_a_later_delivery_does_not_see_what_an_earlier_one_set(
    way: Callable[[], Awaitable[None]], workers: int
) -> None:
    """Each delivery begins in the application's variables and keeps its own over every suspension."""
    seen: list[tuple[str, str]] = []

    async def handler(body: bytes) -> None:
        before = tenant.get()
        tenant.set(body.decode())
        await way()
        seen.append((before, tenant.get()))

    names = [str(number) for number in range(10)]
    items = [ScriptedDelivery(name, name.encode()) for name in names]
    async with rig(handler, *items, workers=workers) as running:
        await running.ends(10)

    assert sorted(seen) == [("nobody", name) for name in names]
    assert tenant.get() == "nobody"


@pytest.mark.promise("HANDLER-8")
@pytest.mark.parametrize("way", _WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_everything_that_runs_for_a_delivery_sees_its_variables(way: Callable[[], Awaitable[None]]) -> None:
    """Awaits, tasks, continuations and hooks see what the handler of their own delivery has set."""
    seen: list[tuple[str, str]] = []

    def note(who: str) -> None:
        seen.append((who, tenant.get()))

    async def note_later(who: str) -> None:
        note(who)
        await anyio.lowlevel.checkpoint()
        note(f"{who}, later")

    async def hook(event: Settled) -> None:
        await note_later("async hook")

    async def handler(body: bytes) -> Outcome:
        tenant.set(body.decode())
        await way()
        await note_later("await")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note_later, "task")

        if body == b"a":
            return ack().and_after(note, "continuation")

        return ack().and_after(note_later, "continuation")

    def plain_hook(event: Settled) -> None:
        note("hook")

    items = [ScriptedDelivery("1", b"a"), ScriptedDelivery("2", b"b")]
    async with rig(handler, *items, hooks=(plain_hook, hook)) as running:
        await running.ends(2)
        await eventually(lambda: not running.tracker.running)

    common = {"await", "await, later", "task", "task, later", "hook", "async hook", "async hook, later", "continuation"}
    assert {who for who, name in seen if name == "a"} == common
    assert {who for who, name in seen if name == "b"} == common | {"continuation, later"}
    assert len(seen) == 2 * len(common) + 1


@pytest.mark.promise("HANDLER-8")
async def test_variables_of_the_application_are_seen() -> None:
    """What was set before the service started is there in every delivery."""
    seen: list[str] = []

    async def handler(body: bytes) -> None:
        seen.append(release.get())
        release.set("changed")

    token = release.set("1.0")
    async with rig(handler, ScriptedDelivery("1"), ScriptedDelivery("2")) as running:
        await running.ends(2)

    release.reset(token)
    assert seen == ["1.0", "1.0"]


@pytest.mark.promise("HANDLER-8", "RETRY-7")
async def test_a_run_in_place_belongs_to_the_same_delivery() -> None:
    """A delivery run again in place keeps its variables."""
    seen: list[str] = []

    async def handler(body: bytes) -> Outcome | None:
        seen.append(tenant.get())
        tenant.set(body.decode())
        return retry_after(1) if len(seen) == 1 else None

    source = ScriptedSource(retry="in_place")
    async with rig(handler, ScriptedDelivery("1", b"a"), source=source) as running:
        await running.timer()
        running.clock.advance(1)
        await running.ends(1)

    assert seen == ["nobody", "a"]


@asynccontextmanager
async def _as_tenant(name: str) -> AsyncIterator[None]:
    token = tenant.set(name)
    try:
        yield
    finally:
        tenant.reset(token)


@pytest.mark.promise("HANDLER-8")
async def test_tokens_can_be_reset_after_a_suspension() -> None:
    """A variable set before an await is reset after it, in the same context, also in a finally."""
    seen: list[str] = []

    async def handler(body: bytes) -> None:
        async with _as_tenant(body.decode()):
            await anyio.lowlevel.checkpoint()
            if body == b"waits":
                with anyio.move_on_after(0):
                    async with _as_tenant("inner"):
                        await anyio.sleep_forever()

            seen.append(tenant.get())

        seen.append(tenant.get())

    async with rig(handler, ScriptedDelivery("1", b"a"), ScriptedDelivery("2", b"waits")) as running:
        await running.ends(2)

    assert running.lines == ["ack 1", "ack 2"]
    assert seen == ["a", "nobody", "waits", "nobody"]


@pytest.mark.promise("HANDLER-8")
async def test_a_handler_may_answer_from_within_scopes_of_its_own(anyio_backend: Any) -> None:
    """Timeouts, shields and task groups inside a handler work as in any task, on every loop."""
    results: list[str] = []

    async def handler(body: bytes) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()

        results.append("cancelled")
        with pytest.raises(TimeoutError):
            await _overdue()

        results.append("timed out")
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()

        with pytest.raises(ExceptionGroup):
            await _failing_group()

        results.append("failed")

    async with rig(handler, ScriptedDelivery("1")) as running:
        await running.ends(1)

    assert running.lines == ["ack 1"]
    assert results == ["cancelled", "timed out", "failed"]


async def _overdue() -> None:
    with anyio.fail_after(0):
        await anyio.sleep_forever()


async def _failing_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_fail)
        await anyio.sleep_forever()


async def _fail() -> None:
    raise ValueError
