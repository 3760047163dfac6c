"""The one module that knows which event loop runs: asyncio (with uvloop) or trio.

Everything else goes through anyio, or through the small `Loop` that `current_loop`
answers. asyncio and trio are imported only when they run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio

if TYPE_CHECKING:
    import asyncio

    import trio

    from pystream.protocols import Timer

__all__ = [
    "Loop",
    "Waiter",
    "current_loop",
    "in_cancelled_scope",
    "inside_of",
    "is_cancellation",
    "outside_of_loops",
]


class Waiter(Protocol):
    """A place where one task sleeps, awaitable once: what asyncio's own futures are."""

    def set_result(self, result: None, /) -> None:
        """End the sleep. On the loop only; not when it is done."""

    def done(self) -> bool:
        """Whether the sleep was ended or cancelled."""

    def cancelled(self) -> bool:
        """Whether it was cancelled before it was ended."""

    def __await__(self) -> Generator[Any, Any, None]: ...


class Loop(Protocol):
    """What pystream needs of an event loop besides anyio."""

    @property
    def library(self) -> Literal["asyncio", "trio"]:
        """Whose loop it is."""

    def now(self) -> float:
        """Seconds, monotonic. On the loop's thread."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call on the loop, outside any task, in `delay` seconds."""

    def post(self, callback: Callable[[], object]) -> bool:
        """Call on the loop soon; from any thread; false, and without effect, once the loop is closed."""

    @property
    def waiter(self) -> Callable[[], Waiter]:
        """Makes a new place to sleep, for the running task."""

    def is_current(self) -> bool:
        """Whether the calling thread runs this very loop."""

    def spawn(self, run: Callable[[], Coroutine[Any, Any, None]], name: str, context: Context) -> object:
        """Start a task that no task group holds; it must not raise. On the loop; keep the result while it runs."""

    def run_another(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `main` to its end on a new loop of the same kind. On any thread that runs no loop."""

    def stray_cancellation(self, error: BaseException) -> bool:
        """Whether `error` is a cancellation that nobody who may cancel has asked for."""


def current_loop() -> Loop:
    """The running loop.

    Raises:
        RuntimeError: No loop runs in this thread.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        loop = asyncio._get_running_loop()
        if loop is not None:
            return _AsyncioLoop(loop)

    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return _TrioLoop()

    raise RuntimeError("no asyncio or trio event loop runs in this thread")


def is_cancellation(error: BaseException) -> bool:
    """Whether `error`, caught in the running task, cancels it: it then has to go on to its scope.

    A cancellation that nobody has asked for is a failure like any other; a task group would swallow it.
    """
    return isinstance(error, anyio.get_cancelled_exc_class()) and not current_loop().stray_cancellation(error)


def in_cancelled_scope() -> bool:
    """Whether the running task is being cancelled by a scope around it.

    If not, its cancellation came past all of them: only asyncio has that. A task group
    would swallow it and go on without the task.
    """
    return anyio.current_effective_deadline() == -math.inf


def outside_of_loops(context: Context) -> None:
    """Take from a context what says that a loop runs: a thread without one is going to run in it.

    Otherwise code there could not run a loop of its own.
    """
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)


def inside_of(loop: Loop, context: Context) -> None:
    """Put into a context that this loop runs: a call that comes from outside of loops is going to run there."""
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, loop.library)


class _AsyncioLoop:
    __slots__ = ("_loop", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waiter: Callable[[], Waiter] = loop.create_future

    @property
    def library(self) -> Literal["asyncio", "trio"]:
        return "asyncio"

    def now(self) -> float:
        return self._loop.time()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(delay, callback)

    def post(self, callback: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return False

        return True

    def is_current(self) -> bool:
        import asyncio

        return asyncio._get_running_loop() is self._loop

    def spawn(self, run: Callable[[], Coroutine[Any, Any, None]], name: str, context: Context) -> object:
        return self._loop.create_task(run(), name=name, context=context)

    def run_another(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # The class of the loop, not the policy: it may be uvloop's, or one of the service's own.
        anyio.run(main, backend="asyncio", backend_options={"loop_factory": type(self._loop)})

    def stray_cancellation(self, error: BaseException) -> bool:
        import asyncio

        if not isinstance(error, asyncio.CancelledError):
            return False

        # A task that somebody cancelled counts the requests; a future that was cancelled
        # under an await, or a bare `raise CancelledError`, leaves the count at 0.
        task = asyncio.current_task()
        return task is not None and task.cancelling() == 0


class _TrioWaiter:
    __slots__ = ("_cancelled", "_done", "_task")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._done = False
        self._cancelled = False

    def set_result(self, result: None, /) -> None:
        import trio

        self._done = True
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def __await__(self) -> Generator[Any, Any, None]:
        return self._sleep().__await__()

    async def _sleep(self) -> None:
        import trio

        if self._done:
            return

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._task = None
            self._done = self._cancelled = True
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)


class _TrioTimer:
    __slots__ = ("_callback", "_scope")

    def __init__(self, delay: float, callback: Callable[[], object]) -> None:
        import trio

        self._callback: Callable[[], object] | None = callback
        self._scope: trio.CancelScope | None = None
        trio.lowlevel.spawn_system_task(self._run, delay)

    async def _run(self, delay: float) -> None:
        import trio

        with trio.CancelScope() as self._scope:
            if self._callback is None:
                return

            await trio.sleep(delay)

        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None
        if self._scope is not None:
            self._scope.cancel()


class _TrioLoop:
    __slots__ = ("_token",)

    def __init__(self) -> None:
        import trio

        self._token = trio.lowlevel.current_trio_token()

    @property
    def library(self) -> Literal["asyncio", "trio"]:
        return "trio"

    def now(self) -> float:
        import trio

        return trio.current_time()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return _TrioTimer(delay, callback)

    def post(self, callback: Callable[[], object]) -> bool:
        import trio

        try:
            self._token.run_sync_soon(callback)
        except trio.RunFinishedError:  # the loop is closed: nobody is left to be told
            return False

        return True

    @property
    def waiter(self) -> Callable[[], Waiter]:
        return _TrioWaiter

    def is_current(self) -> bool:
        import trio

        return trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token

    def spawn(self, run: Callable[[], Coroutine[Any, Any, None]], name: str, context: Context) -> object:
        import trio

        return trio.lowlevel.spawn_system_task(run, name=name, context=context)

    def run_another(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        anyio.run(main, backend="trio")

    def stray_cancellation(self, error: BaseException) -> bool:
        return False  # trio's cancellations cannot be made but by a cancelled scope
