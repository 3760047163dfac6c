"""The loop beneath: its clock, its timers, its cancellations, alike on asyncio, uvloop and trio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest
from pystream._loops import current_loop, in_cancelled_scope, is_cancellation
from pystream.clock import LoopClock

from tests.core.lifecycle.support import ASYNCIO_ONLY

pytestmark = pytest.mark.anyio

SECONDS = 5.0


def no_task() -> bool:
    """Whether this is called outside any task of the test's loop."""
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True  # trio: its timers run in a task of the system


@pytest.mark.promise("SDK-33")
async def test_timers_fire_in_order_on_the_loop() -> None:
    """call_later calls on the loop's thread, outside any task, not before its time and never from within."""
    clock = LoopClock()
    fired: list[tuple[str, float, int]] = []
    done = anyio.Event()

    def fire(name: str) -> None:
        assert no_task()
        fired.append((name, clock.now(), threading.get_ident()))
        if len(fired) == 3:
            done.set()

    begun = clock.now()
    clock.call_later(0.04, lambda: fire("last"))
    clock.call_later(0.02, lambda: fire("second"))
    clock.call_later(0, lambda: fire("first"))
    assert fired == []

    with anyio.fail_after(SECONDS):
        await done.wait()

    assert [name for name, _, _ in fired] == ["first", "second", "last"]
    assert {thread for _, _, thread in fired} == {threading.get_ident()}
    millisecond = 0.001  # uvloop's clock is no finer
    assert fired[1][1] - begun >= 0.02 - millisecond
    assert fired[2][1] - begun >= 0.04 - millisecond


@pytest.mark.promise("SDK-33")
async def test_cancelled_timer_does_not_fire() -> None:
    """A timer cancelled at once, later, or by another timer is not called; cancelling a fired one is harmless."""
    clock = LoopClock()
    fired: list[str] = []
    done = anyio.Event()

    clock.call_later(0, lambda: fired.append("at once")).cancel()
    later = clock.call_later(0.02, lambda: fired.append("later"))
    first = clock.call_later(0.005, later.cancel)
    clock.call_later(0.05, done.set)
    with anyio.fail_after(SECONDS):
        await done.wait()

    first.cancel()
    later.cancel()
    assert fired == []


@pytest.mark.promise("SDK-33")
async def test_timer_that_is_left_does_not_keep_the_loop_alive(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    """A loop ends although a timer is still set, and the timer is never called."""
    fired: list[int] = []

    async def leave() -> None:
        LoopClock().call_later(60, lambda: fired.append(1))

    def run() -> None:
        anyio.run(leave, backend=anyio_backend[0], backend_options=anyio_backend[1])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert fired == []


@pytest.mark.promise("SDK-33")
async def test_loop_knows_its_own_thread() -> None:
    """A loop is current on its own thread and in no other; a thread without a loop has none."""
    loop = current_loop()
    assert loop.is_current()
    elsewhere: list[object] = []

    def look() -> None:
        elsewhere.append(loop.is_current())
        try:
            current_loop()
        except RuntimeError as error:
            elsewhere.append(str(error))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(SECONDS)
    assert elsewhere == [False, "no asyncio or trio event loop runs in this thread"]


def judged(error: BaseException) -> tuple[bool, bool, bool]:
    """Whether it is a cancellation, a stray one, and whether a scope around is cancelled."""
    return is_cancellation(error), current_loop().stray_cancellation(error), in_cancelled_scope()


@pytest.mark.promise("SDK-34")
async def test_cancellation_by_a_scope_is_one() -> None:
    """What a cancelled scope raises is a cancellation and no stray one; any other error is neither."""
    seen: list[tuple[bool, bool, bool]] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            seen.append(judged(error))
            raise

    assert seen == [(True, False, True)]
    for other in (LookupError(), SystemExit(), KeyboardInterrupt()):
        assert judged(other) == (False, False, False)


@pytest.mark.promise("SDK-34")
@ASYNCIO_ONLY
async def test_cancellation_that_nobody_asked_for_is_stray() -> None:
    """A cancelled future under an await, or a bare CancelledError, cancels nothing and is told apart."""
    seen: list[tuple[bool, bool, bool]] = []
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    for raising in (future, fails_with(asyncio.CancelledError())):
        try:
            await raising
        except BaseException as error:
            seen.append(judged(error))

    assert seen == [(False, True, False)] * 2


@pytest.mark.promise("SDK-34")
@ASYNCIO_ONLY
async def test_cancelled_task_is_no_stray_cancellation() -> None:
    """Asyncio's own cancel of a task is asked for, although no scope around it is cancelled."""
    seen: list[tuple[bool, bool, bool]] = []

    async def sleep() -> None:
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError as error:
            seen.append(judged(error))
            raise

    task = asyncio.get_running_loop().create_task(sleep())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert seen == [(True, False, False)]


async def fails_with(error: BaseException) -> None:
    raise error
