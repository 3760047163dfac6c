"""Plain `def` handlers: run on threads of our own, never on the loop.

The threads are daemons: a handler that never returns cannot keep the process alive, as it
would on the worker threads that event loops and anyio keep.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

from pystream._loops import outside_of_loops
from pystream.signal import Signal

AsyncHandler: TypeAlias = "Callable[..., Coroutine[Any, Any, Any]]"

_ABSENT: Final = object()

logger = logging.getLogger("pystream.threads")


class PlainPool:
    """The threads on which the `def` handler of one subscription runs.

    `call` and `close` belong to the loop that handles the deliveries.

    Args:
        size: How many calls run at once: as many as the form handles deliveries at once, 1 or more.
        name: The subscription's; the threads are named after it and their index.
    """

    __slots__ = ("_closed", "_jobs", "_name", "_size", "_threads", "_unfinished")

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # The loop adds, the threads take out: what a call has finished is free before its result arrives.
        self._unfinished: set[_Job] = set()
        self._threads = 0
        self._closed = False

    @property
    def abandoned(self) -> list[str]:
        """The names of the threads whose call was cancelled and has not returned."""
        return sorted(job.thread for job in self._unfinished.copy() if job.abandoned)

    async def call(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run `fn` on one of the threads, in the context variables of the caller; what it returns.

        What `fn` has set of context variables is set for the caller, too. What it raises comes
        out as it is, but for `StopIteration`, which becomes a `RuntimeError` as in any coroutine.

        Raises:
            RuntimeError: The pool was closed, or the system gives no thread.

        Cancel safety: a cancelled call that has not begun never runs. One that runs is
        abandoned: its result is dropped, and its place stays taken until it returns.
        """
        if self._closed:
            raise RuntimeError(f"the threads of {self._name} were closed; nothing more runs on them")

        job = _Job(fn, args, kwargs)
        self._unfinished.add(job)
        try:
            self._grow()
            self._jobs.put(job)
            await job.done.wait()
        except BaseException:
            job.abandoned = not job.claim()
            if not job.abandoned:
                self._unfinished.discard(job)

            raise

        return job.outcome()

    def close(self) -> None:
        """End the threads, each once it has returned; what was abandoned is named. Synchronous, idempotent."""
        if self._closed:
            return

        self._closed = True
        if self.abandoned:
            logger.warning(
                "%s: the handler was cancelled and has not returned; it is abandoned, and what it returns is dropped",
                ", ".join(self.abandoned),
            )

        for _ in range(self._threads):
            self._jobs.put(None)

    def _grow(self) -> None:
        """One thread more, if every thread there is has a call already."""
        if self._threads == self._size or len(self._unfinished) <= self._threads:
            return

        name = f"{self._name} def {self._threads}"
        threading.Thread(target=_serve, args=(self._jobs, self._unfinished, name), name=name, daemon=True).start()
        self._threads += 1


class _Job:
    """One call, from the loop to a thread and back."""

    __slots__ = ("_before", "_claimed", "_context", "_error", "_result", "_run", "abandoned", "done", "thread")

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        # A copy: the coroutine may be resumed by a cancellation while the thread is still in its context.
        self._context = copy_context()
        outside_of_loops(self._context)
        self._before = self._context.copy()
        self._run = lambda: fn(*args, **kwargs)
        self._claimed = threading.Lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self.thread = ""
        self.abandoned = False
        self.done = Signal()

    def claim(self) -> bool:
        """Whether nobody else has claimed it: a thread to run it, or the caller to forget it."""
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        """Call the function, on the thread, and keep what becomes of it."""
        try:
            self._result = self._context.run(self._run)
        except BaseException as error:  # also an exit: it is the handler's, raised where its delivery is handled
            self._error = error

    def outcome(self) -> Any:
        """Set what was set; return or raise what the function did. On the loop, in the caller's context."""
        for variable, value in self._context.items():
            if self._before.get(variable, _ABSENT) is not value:
                variable.set(value)

        error, self._error = self._error, None
        if error is None:
            return self._result

        try:
            raise error
        finally:
            del error  # or error, traceback and frame would keep each other alive


def _serve(jobs: SimpleQueue[_Job | None], unfinished: set[_Job], name: str) -> None:
    """The life of one thread."""
    while True:
        job = jobs.get()
        if job is None:
            return

        job.thread = name  # before the claim: an abandoned call has a name
        if job.claim():
            job.run()

        unfinished.discard(job)
        job.done.wake_from_thread()
        del job  # or an idle thread would keep the last delivery alive


def awaitable(handler: Callable[..., Any], pool: PlainPool) -> AsyncHandler:
    """A `def` handler as the coroutine function that the pipeline calls.

    Args:
        handler: A `def`; if it returns an awaitable, that is awaited on the loop.
        pool: Where it runs.
    """

    async def on_the_pool(*args: Any, **kwargs: Any) -> Any:
        result = await pool.call(handler, args, kwargs)
        return await result if inspect.isawaitable(result) else result

    return on_the_pool


def on_this_thread(handler: Callable[..., Any]) -> AsyncHandler:
    """The same for a loop on a dedicated thread, which a `def` handler may block."""

    async def in_line(*args: Any, **kwargs: Any) -> Any:
        result = handler(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return in_line
