"""Plain `def` handlers: where they run, what they see, and what becomes of those that do not return."""

from __future__ import annotations

import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from textwrap import dedent
from typing import Any

import anyio
import pytest
from pystream import mount, subscriber
from pystream._loops import current_loop
from pystream._runtime.plain import PlainPool, awaitable, on_this_thread
from pystream._runtime.signature import read_signature
from pystream.errors import RegistrationError

from tests.core.rig import eventually, idle

pytestmark = pytest.mark.anyio

PATIENCE = 10.0
ABANDONED = "the handler was cancelled and has not returned; it is abandoned, and what it returns is dropped"

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
unit: contextvars.ContextVar[str] = contextvars.ContextVar("unit")


@asynccontextmanager
async def pool_of(size: int) -> AsyncIterator[PlainPool]:
    """A pool that is closed at the end, within a bound."""
    pool = PlainPool(size, "orders")
    try:
        with anyio.fail_after(PATIENCE):
            yield pool
    finally:
        pool.close()


class Held:
    """A function that says when it runs and returns when it is let go."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self._go_on = threading.Event()
        self.threads: list[str] = []

    def __call__(self, result: object = None) -> object:
        self.threads.append(threading.current_thread().name)
        self.running.release()
        self._go_on.wait(PATIENCE)
        return result

    def let_go(self) -> None:
        self._go_on.set()

    async def begun(self, times: int = 1) -> None:
        await eventually(lambda: self._count(times))

    def _count(self, times: int) -> bool:
        return len(self.threads) >= times


def alive(prefix: str = "orders def") -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(prefix))


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Every test closes its pool, and the threads end."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("orders def"):
            thread.join(PATIENCE)

    assert alive() == []


@pytest.mark.promise("DISPATCH-20")
async def test_a_plain_function_runs_off_the_loop() -> None:
    """The call runs on a daemon thread named after the subscription and its index; arguments and result pass."""
    threads: list[threading.Thread] = []

    def fn(*args: int, **kwargs: int) -> tuple[Any, ...]:
        threads.append(threading.current_thread())
        return args, kwargs

    async with pool_of(2) as pool:
        assert await pool.call(fn, (1, 2), {"three": 3}) == ((1, 2), {"three": 3})
        (thread,) = threads
        assert thread is not threading.current_thread()
        assert (thread.daemon, thread.name) == (True, "orders def 0")


@pytest.mark.promise("DISPATCH-20")
async def test_the_loop_goes_on_while_a_plain_function_blocks() -> None:
    """What blocks its thread does not block the loop: other tasks run meanwhile."""
    held = Held()
    async with pool_of(1) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, held, (), {})
        await held.begun()
        await idle()
        held.let_go()


@pytest.mark.promise("DISPATCH-21")
async def test_threads_begin_when_they_are_needed() -> None:
    """No thread runs before the first call, and calls one after the other share one thread."""
    async with pool_of(3) as pool:
        assert alive() == []
        names = [await pool.call(lambda: threading.current_thread().name, (), {}) for _ in range(20)]
        assert set(names) == {"orders def 0"}
        assert alive() == ["orders def 0"]


@pytest.mark.promise("DISPATCH-21")
@pytest.mark.parametrize("size", [1, 2, 5])
async def test_as_many_run_at_once_as_the_form_handles(size: int) -> None:
    """`size` calls run at once, one more waits, and no thread is made for it."""
    held = Held()
    async with pool_of(size) as pool, anyio.create_task_group() as tasks:
        for _ in range(size):
            tasks.start_soon(pool.call, held, (), {})

        await held.begun(size)
        ran: list[int] = []
        tasks.start_soon(pool.call, ran.append, (1,), {})
        await idle()
        assert ran == []
        assert alive() == [f"orders def {index}" for index in range(size)]
        held.let_go()

    assert ran == [1]
    assert len(set(held.threads)) == size


@pytest.mark.promise("DISPATCH-22")
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopAsyncIteration()])
async def test_what_a_plain_function_raises_comes_out(error: BaseException) -> None:
    """Errors and exits come out of the call as they are, and the thread goes on."""

    def fn() -> None:
        raise error

    async with pool_of(1) as pool:
        with pytest.raises(type(error)) as caught:
            await pool.call(fn, (), {})

        assert caught.value is error
        assert await pool.call(lambda: 5, (), {}) == 5


@pytest.mark.promise("DISPATCH-22")
async def test_stop_iteration_is_a_runtime_error() -> None:
    """StopIteration cannot pass through a coroutine; it is the cause of a RuntimeError."""

    def fn() -> None:
        raise StopIteration(5)

    async with pool_of(1) as pool:
        with pytest.raises(RuntimeError) as caught:
            await pool.call(fn, (), {})

    assert isinstance(caught.value.__cause__, StopIteration)


class _Weak:
    """Something that a weak reference can follow."""


@pytest.mark.promise("DISPATCH-22")
@pytest.mark.parametrize("fails", [False, True])
async def test_an_idle_thread_keeps_nothing_alive(fails: bool) -> None:
    """After a call neither its arguments nor its error are kept, without a garbage collection."""
    argument = _Weak()
    kept = weakref.ref(argument)

    def fn(given: object) -> None:
        if fails:
            raise ValueError

    async with pool_of(1) as pool:
        gc.disable()
        try:
            if fails:
                with pytest.raises(ValueError, match=r"^$"):
                    await pool.call(fn, (argument,), {})
            else:
                await pool.call(fn, (argument,), {})

            del argument
            await eventually(lambda: kept() is None)
        finally:
            gc.enable()


@pytest.mark.promise("DISPATCH-23")
async def test_context_variables_pass_both_ways() -> None:
    """The function sees the caller's variables; what it sets, the caller sees; what it leaves stays as it was."""
    release = contextvars.ContextVar("release", default="none")

    def fn() -> tuple[str, str]:
        seen = tenant.get(), release.get()
        tenant.set("after")
        unit.set("new")
        return seen

    async with pool_of(1) as pool:
        tenant.set("before")
        release.set("1.0")
        assert await pool.call(fn, (), {}) == ("before", "1.0")

    assert (tenant.get(), unit.get(), release.get()) == ("after", "new", "1.0")


@pytest.mark.promise("DISPATCH-23")
async def test_context_variables_of_a_failed_call_pass_too() -> None:
    """What a function has set before it raised is seen where its failure is handled."""

    def fn() -> None:
        tenant.set("failed")
        raise ValueError("no")

    async with pool_of(1) as pool:
        with pytest.raises(ValueError, match="no"):
            await pool.call(fn, (), {})

    assert tenant.get() == "failed"


@pytest.mark.promise("DISPATCH-23")
async def test_context_variables_of_one_call_are_not_those_of_the_next() -> None:
    """Two deliveries on one thread see nothing of each other."""

    async def deliver(name: str) -> None:
        tenant.set(name)
        assert await pool.call(tenant.get, (), {}) == name
        await pool.call(tenant.set, (name * 2,), {})
        assert tenant.get() == name * 2

    async with pool_of(1) as pool, anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(deliver, name)

    assert tenant.get() == "nobody"


@pytest.mark.promise("DISPATCH-23")
async def test_a_plain_function_may_run_a_loop_of_its_own() -> None:
    """On its thread no loop runs, and nothing in its context says that one does."""

    async def inner() -> int:
        await anyio.lowlevel.checkpoint()
        return 5

    async with pool_of(1) as pool:
        assert await pool.call(anyio.run, (inner,), {}) == 5
        with pytest.raises(RuntimeError):
            await pool.call(current_loop, (), {})

        await anyio.lowlevel.checkpoint()  # and the caller's still knows where it is


async def _cancelled_call(pool: PlainPool, fn: Callable[..., Any], begun: Callable[[], Any]) -> None:
    """Call, and cancel the call once it has begun."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, fn, (), {})
        await begun()
        tasks.cancel_scope.cancel()


@pytest.mark.promise("DISPATCH-24")
async def test_a_cancelled_call_is_abandoned() -> None:
    """The cancellation does not wait for the function; the thread is named until it has returned."""
    held = Held()
    async with pool_of(2) as pool:
        assert pool.abandoned == []
        await _cancelled_call(pool, held, held.begun)
        assert pool.abandoned == ["orders def 0"]
        held.let_go()
        await eventually(lambda: pool.abandoned == [])


@pytest.mark.promise("DISPATCH-24")
async def test_what_an_abandoned_call_sets_and_returns_is_dropped() -> None:
    """The result and the variables of a call that nobody waits for any more reach nobody."""
    held = Held()

    def fn() -> None:
        held()
        tenant.set("too late")

    async with pool_of(1) as pool:
        tenant.set("mine")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_begun, held, scope)
                await pool.call(fn, (), {})

        held.let_go()
        await eventually(lambda: pool.abandoned == [])
        await idle()

    assert scope.cancelled_caught
    assert tenant.get() == "mine"


async def _cancel_when_begun(held: Held, scope: anyio.CancelScope) -> None:
    await held.begun()
    scope.cancel()


@pytest.mark.promise("DISPATCH-24")
async def test_the_place_of_an_abandoned_call_stays_taken() -> None:
    """Nothing runs in the place of a call that was abandoned until it has returned; other places are free."""
    held = Held()
    async with pool_of(2) as pool:
        await _cancelled_call(pool, held, held.begun)
        assert await pool.call(lambda: threading.current_thread().name, (), {}) == "orders def 1"
        other = Held()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.call, other, (), {})
            await other.begun()
            ran: list[int] = []
            tasks.start_soon(pool.call, ran.append, (1,), {})
            await idle()
            assert ran == []
            held.let_go()
            await eventually(lambda: ran == [1])
            other.let_go()


@pytest.mark.promise("DISPATCH-24")
async def test_a_call_cancelled_before_it_began_never_runs() -> None:
    """A call that waits for a place and is cancelled leaves nothing behind, and takes no place."""
    held, ran = Held(), Held()
    async with pool_of(1) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, held, (), {})
        await held.begun()
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancel_after, scope)
            await pool.call(ran, (), {})

        assert scope.cancelled_caught
        assert pool.abandoned == []
        held.let_go()
        assert await pool.call(lambda: 5, (), {}) == 5

    assert ran.threads == []


async def _cancel_after(scope: anyio.CancelScope) -> None:
    await idle()
    scope.cancel()


@pytest.mark.promise("DISPATCH-25")
async def test_idle_threads_end_at_the_close(caplog: pytest.LogCaptureFixture) -> None:
    """A close ends idle threads at once; abandoned ones it names in one WARNING, and they end when they return."""
    held = Held()
    async with pool_of(2) as pool:
        await _cancelled_call(pool, held, held.begun)
        await pool.call(lambda: None, (), {})
        assert alive() == ["orders def 0", "orders def 1"]
        pool.close()
        pool.close()
        await eventually(lambda: alive() == ["orders def 0"])
        (record,) = caplog.records
        assert (record.levelname, record.getMessage()) == ("WARNING", f"orders def 0: {ABANDONED}")
        with pytest.raises(RuntimeError, match=r"^the threads of orders were closed; nothing more runs on them$"):
            await pool.call(held, (), {})

        held.let_go()
        await eventually(lambda: alive() == [])


@pytest.mark.promise("DISPATCH-25")
async def test_a_thread_that_cannot_begin_fails_the_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no thread, the call fails and keeps no place: the next ones share one thread."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with pool_of(2) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await pool.call(lambda: None, (), {})

        assert [await pool.call(lambda: 5, (), {}) for _ in range(2)] == [5, 5]
        assert alive() == ["orders def 0"]


_NEVER_RETURNS = """
    import threading
    import anyio
    from pystream._runtime.plain import PlainPool

    async def main():
        begun = threading.Event()
        pool = PlainPool(1, "orders")

        def never():
            begun.set()
            threading.Event().wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.call, never, (), {})
            while not begun.is_set():
                await anyio.sleep(0.001)

            tasks.cancel_scope.cancel()

        pool.close()
        print(pool.abandoned)

    anyio.run(main, backend=BACKEND)
"""


@pytest.mark.promise("DISPATCH-25")
def test_a_function_that_never_returns_does_not_keep_the_process_alive(anyio_backend: Any) -> None:
    """The process ends while an abandoned call still blocks its thread."""
    script = dedent(_NEVER_RETURNS).replace("BACKEND", repr(anyio_backend[0]))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "['orders def 0']\n"
    assert ended.stderr == f"orders def 0: {ABANDONED}\n"


@pytest.mark.promise("DISPATCH-22", "DISPATCH-24")
async def test_many_calls_and_cancellations_lose_nothing() -> None:
    """Of many calls some are cancelled; each other one returns its own value, and every place is free again."""
    results: list[int] = []

    async def deliver(number: int) -> None:
        with anyio.CancelScope() as scope:
            if number % 3 == 0:
                tasks.start_soon(_cancel_soon, scope)

            results.append(await pool.call(lambda: number, (), {}))

    async with pool_of(4) as pool:
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(deliver, number)

        await eventually(lambda: pool.abandoned == [])
        assert await pool.call(lambda: "still", (), {}) == "still"

    assert {number for number in range(300) if number % 3} <= set(results)
    assert len(results) == len(set(results))


async def _cancel_soon(scope: anyio.CancelScope) -> None:
    await anyio.lowlevel.checkpoint()
    scope.cancel()


@pytest.mark.promise("DISPATCH-26")
async def test_a_def_handler_becomes_a_coroutine_function_of_the_pool() -> None:
    """What the pipeline awaits runs on the pool; an awaitable that the function returns is awaited on the loop."""
    threads: list[threading.Thread] = []

    async def later(value: int) -> int:
        threads.append(threading.current_thread())
        await anyio.lowlevel.checkpoint()
        return value

    def handler(value: int, *, more: int = 0) -> Any:
        threads.append(threading.current_thread())
        return later(value) if more else value

    async with pool_of(1) as pool:
        handle = awaitable(handler, pool)
        assert await handle(5) == 5
        assert await handle(5, more=1) == 5

    assert [thread is threading.current_thread() for thread in threads] == [False, False, True]


@pytest.mark.promise("DISPATCH-26")
async def test_a_def_handler_on_a_dedicated_thread_runs_in_line() -> None:
    """On a loop of its own the function runs on the very thread."""
    threads: list[threading.Thread] = []

    async def later(value: int) -> int:
        return value

    def handler(value: int, *, more: int = 0) -> Any:
        threads.append(threading.current_thread())
        return later(value) if more else value

    handle = on_this_thread(handler)
    assert await handle(5) == 5
    assert await handle(5, more=1) == 5
    assert threads == [threading.current_thread()] * 2


class _Callable:
    def __call__(self, order: bytes) -> None: ...


@subscriber("orders")
def declared(order: bytes, count: int = 1) -> int:
    return count


@pytest.mark.promise("DISPATCH-27")
@pytest.mark.parametrize("handler", [declared, _Callable(), _Callable().__call__])
def test_a_plain_function_is_a_handler(handler: Callable[..., Any]) -> None:
    """The signature of a `def` is read like any other, and says that it is one."""
    signature = read_signature(handler)
    assert not signature.is_async
    assert signature.parameters[0].annotation is bytes


@pytest.mark.promise("DISPATCH-27")
def test_an_async_function_says_that_it_is_one() -> None:
    """A coroutine function runs on the loop."""

    async def handler(order: bytes) -> None: ...

    assert read_signature(handler).is_async


def _generator(order: bytes) -> Iterator[int]:
    yield 1


async def _async_generator(order: bytes) -> AsyncIterator[int]:
    yield 1


@pytest.mark.promise("DISPATCH-27")
@pytest.mark.parametrize("handler", [_generator, _async_generator])
def test_generators_are_no_handlers(handler: Callable[..., Any]) -> None:
    """A generator, of either kind, would run nothing, and is refused with the way out."""
    with pytest.raises(RegistrationError) as caught:
        read_signature(mount(handler, "orders").handler)

    assert str(caught.value) == (
        f"{handler.__name__} is a generator, and nothing would run it; use a `def` or an `async def` "
        "that returns one value, and publish several through a parameter Out[T]"
    )


@pytest.mark.promise("DISPATCH-27")
@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (_Callable, "_Callable is a class; mount an instance that can be called, or a function"),
        (dict.fromkeys, "dict.fromkeys: the parameter 'iterable' has no annotation; say what it should receive"),
        ({}.update, "dict.update: its signature cannot be read; wrap it in a function"),
    ],
)
def test_what_is_no_function_of_a_service_is_refused(handler: Any, sentence: str) -> None:
    """Classes and functions without a readable signature are refused by name."""
    with pytest.raises(RegistrationError) as caught:
        read_signature(handler)

    assert str(caught.value) == sentence
