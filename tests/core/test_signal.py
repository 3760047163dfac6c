"""`Signal` and `LoopCall`: no wake-up is lost, from tasks and from threads, on every loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pystream.signal import LoopCall, Signal

pytestmark = pytest.mark.anyio

SECONDS = 10.0
THREADS = 4
EACH = 2000


def run_in(thread: Callable[[], object]) -> threading.Thread:
    started = threading.Thread(target=thread, daemon=True)
    started.start()
    return started


@pytest.mark.promise("SDK-30")
async def test_wake_up_without_a_waiter_is_kept() -> None:
    """A wake-up before the wait ends it at once; several of them count as one."""
    signal = Signal()
    signal.wake()
    signal.wake()
    with anyio.fail_after(SECONDS):
        await signal.wait()

    with anyio.move_on_after(0) as scope:
        await signal.wait()

    assert scope.cancelled_caught


@pytest.mark.promise("SDK-30")
async def test_wake_ends_the_present_wait_and_no_later_one() -> None:
    """One wake, or several before the waiter runs, end one wait."""
    signal = Signal()
    ended = 0

    async def wait_for_ever() -> None:
        nonlocal ended
        while True:
            await signal.wait()
            ended += 1

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_ever)
            for rounds in (1, 2, 3):
                await anyio.wait_all_tasks_blocked()
                for _ in range(rounds):
                    signal.wake()

                await anyio.wait_all_tasks_blocked()
                assert ended == rounds

            tasks.cancel_scope.cancel()


@pytest.mark.promise("SDK-30")
@pytest.mark.parametrize("wake_first", [True, False])
async def test_cancelled_wait_loses_no_wake_up(wake_first: bool) -> None:
    """A wake-up in the same turn of the loop as the waiter's cancellation is there for the next wait."""
    signal = Signal()
    scope = anyio.CancelScope()
    returned = False

    async def wait() -> None:
        nonlocal returned
        with scope:
            await signal.wait()
            returned = True

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            for act in (signal.wake, scope.cancel) if wake_first else (scope.cancel, signal.wake):
                act()

        if not returned:  # then the wake-up is still there
            await signal.wait()


@pytest.mark.promise("SDK-30")
async def test_second_waiter_is_refused() -> None:
    """A Signal has one waiter; another is told so, and the first is not disturbed."""
    signal = Signal()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal.wait)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="one waiter"):
                await signal.wait()

            signal.wake()


@pytest.mark.promise("SDK-31")
async def test_wake_ups_from_threads_under_load() -> None:
    """Threads that add and wake as fast as they can never leave something behind while the waiter sleeps."""
    signal = Signal()
    items: deque[int] = deque()
    seen: list[int] = []

    def add() -> None:
        for number in range(EACH):
            items.append(number)
            signal.wake_from_thread()

    threads = [run_in(add) for _ in range(THREADS)]
    with anyio.fail_after(SECONDS):
        while len(seen) < THREADS * EACH:
            while items:
                seen.append(items.popleft())

            if len(seen) < THREADS * EACH:
                await signal.wait()

    for thread in threads:
        thread.join(SECONDS)

    assert sorted(seen) == sorted(list(range(EACH)) * THREADS)


@pytest.mark.promise("SDK-31")
async def test_every_item_is_answered_before_the_next() -> None:
    """A thread that waits for each answer is never left waiting: each wake-up arrives by itself."""
    signal = Signal()
    items: deque[int] = deque()
    answered = threading.Event()
    late: list[int] = []

    def ask() -> None:
        for number in range(500):
            items.append(number)
            signal.wake_from_thread()
            if not answered.wait(SECONDS):
                late.append(number)
                return

            answered.clear()

    thread = run_in(ask)
    with anyio.fail_after(SECONDS):
        for _ in range(500):
            while not items:
                await signal.wait()

            items.popleft()
            answered.set()

    thread.join(SECONDS)
    assert late == []


@pytest.mark.promise("SDK-31")
async def test_wake_from_a_thread_before_the_first_wait_is_kept() -> None:
    """A thread may wake a signal that no loop has waited on yet."""
    signal = Signal()
    run_in(signal.wake_from_thread).join(SECONDS)
    with anyio.fail_after(SECONDS):
        await signal.wait()


@pytest.mark.promise("SDK-31")
async def test_wake_ups_from_threads_are_coalesced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of wake-ups that the loop has not seen yet are one call on the loop."""
    signal = Signal()
    with anyio.move_on_after(0):
        await signal.wait()  # from here on it belongs to this loop

    delivered = 0

    def count() -> None:
        nonlocal delivered
        delivered += 1
        deliver()

    deliver = signal._deliver
    monkeypatch.setattr(Signal, "_deliver", property(lambda self: count))

    def wake() -> None:
        for _ in range(100):
            signal.wake_from_thread()

    run_in(wake).join(SECONDS)  # this loop stands still meanwhile
    with anyio.fail_after(SECONDS):
        await signal.wait()

    await anyio.wait_all_tasks_blocked()
    assert delivered == 1


def in_loop(backend: tuple[str, dict[str, Any]], function: Callable[[], Any]) -> Any:
    """Run an async function in a loop that is closed afterwards."""
    result: list[Any] = []

    def run() -> None:
        result.append(anyio.run(function, backend=backend[0], backend_options=backend[1]))

    run_in(run).join(SECONDS)
    return result[0]


@pytest.mark.promise("SDK-31")
async def test_wake_on_a_closed_loop_is_harmless(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    """A signal, or a call, whose loop is gone may still be asked: nothing is raised, and the call says no."""

    async def leave() -> tuple[Signal, LoopCall]:
        signal = Signal()
        with anyio.move_on_after(0):
            await signal.wait()

        return signal, LoopCall(lambda: None)

    signal, call = in_loop(anyio_backend, leave)
    signal.wake_from_thread()
    signal.wake_from_thread()
    assert not call.request()
    assert not call.request()


@pytest.mark.promise("SDK-32")
async def test_requested_calls_from_threads() -> None:
    """Every request of a thread is served by a call after it, on the loop's thread."""
    items: deque[int] = deque()
    seen: list[int] = []
    calls: list[int] = []
    done = anyio.Event()

    def serve() -> None:
        calls.append(threading.get_ident())
        while items:
            seen.append(items.popleft())

        if len(seen) == THREADS * EACH:
            done.set()

    call = LoopCall(serve)
    accepted: list[bool] = []

    def add() -> None:
        for number in range(EACH):
            items.append(number)
            accepted.append(call.request())

    threads = [run_in(add) for _ in range(THREADS)]
    with anyio.fail_after(SECONDS):
        await done.wait()

    for thread in threads:
        thread.join(SECONDS)

    assert len(seen) == THREADS * EACH
    assert all(accepted)
    assert set(calls) == {threading.get_ident()}


@pytest.mark.promise("SDK-32")
async def test_requests_that_wait_count_as_one() -> None:
    """Many requests before the loop's next turn are one call."""
    calls = 0

    def serve() -> None:
        nonlocal calls
        calls += 1

    call = LoopCall(serve)
    for expected in (1, 2):
        assert [call.request() for _ in range(100)] == [True] * 100
        with anyio.fail_after(SECONDS):
            while calls < expected:
                await anyio.lowlevel.checkpoint()

        await anyio.wait_all_tasks_blocked()
        assert calls == expected
