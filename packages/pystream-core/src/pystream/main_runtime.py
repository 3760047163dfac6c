"""`MainRuntime`: the app's own event loop, for handlers that run on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple, overload

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from pystream._loops import Loop, current_loop, inside_of
from pystream._runtime.crossing import Crossing, result_of
from pystream.errors import ServiceStopped

__all__ = ["Adopt", "MainRuntime", "Spawned"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Adopt: TypeAlias = "Callable[[str, Callable[[], Awaitable[None]]], None]"
"""Runs a coroutine function, which must not raise, as a task that the app waits for at its stop."""


class MainRuntime:
    """The app's own event loop; a handler's parameter, for use from any thread or loop of the app.

    A handler under `threads=` runs on a loop of its own, where a client that was made on the
    app's loop, such as one in the state, raises or hangs. What uses such a client goes through
    here. On the app's loop itself the calls are made directly.

    Args:
        adopt: Runs what is asked for. The object belongs to the loop on which it is made.
    """

    __slots__ = ("_adopt", "_calls", "_closed", "_lock", "_loop")

    def __init__(self, adopt: Adopt) -> None:
        self._adopt = adopt
        self._loop: Loop = current_loop()
        self._lock = threading.Lock()
        self._calls: set[Crossing] = set()  # those that have not begun
        self._closed = False

    @overload
    async def run(self, fn: Callable[[*Ts], Awaitable[T]], /, *args: *Ts) -> T: ...

    @overload
    async def run(self, fn: Callable[[*Ts], T], /, *args: *Ts) -> T: ...

    async def run(self, fn: Callable[[*Ts], Any], /, *args: *Ts) -> Any:
        """Run `fn(*args)` on the app's loop; return its result, or raise what it raises.

        It sees the caller's context variables; what it sets, the caller does not see, unless
        both are on the app's loop.

        Args:
            fn: A coroutine function, or a plain one, which must not block: it holds the app's loop.
            *args: Handed to it as they are.

        Raises:
            ServiceStopped: The app has stopped, or stops before `fn` has ended.

        Cancel safety: a cancelled `run` cancels `fn` on the app's loop, and waits until it has ended.
        """
        if self._loop.is_current():
            self._refuse_if_closed()
            return await result_of(fn, args)

        await checkpoint_if_cancelled()  # or it would begin there before it is cancelled
        call = Crossing(fn, args)
        self._send(call)
        try:
            await call.ended()
        except BaseException:
            self._loop.post(call.cancel)
            with anyio.CancelScope(shield=True):
                await call.ended()

            raise

        return call.outcome()

    @overload
    def spawn(self, fn: Callable[[*Ts], Awaitable[T]], /, *args: *Ts) -> Spawned[T]: ...

    @overload
    def spawn(self, fn: Callable[[*Ts], T], /, *args: *Ts) -> Spawned[T]: ...

    def spawn(self, fn: Callable[[*Ts], Any], /, *args: *Ts) -> Spawned[Any]:
        """Have `fn(*args)` run on the app's loop, as a task that the app waits for at its stop. Synchronous.

        Args:
            fn: As for `run`. It sees the caller's context variables.
            *args: Handed to it as they are.

        Returns:
            A handle that may be awaited. What `fn` raises and nobody has awaited is logged.

        Raises:
            ServiceStopped: The app has stopped.
        """
        call = Crossing(fn, args)
        self._send(call)
        return Spawned(call)

    def close(self) -> None:
        """Take nothing more; what has not begun is refused. Only on the app's loop, idempotent."""
        with self._lock:
            self._closed = True
            waiting, self._calls = self._calls, set()

        for call in waiting:
            call.refuse()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ServiceStopped("the app has stopped, and its MainRuntime runs nothing any more")

    def _send(self, call: Crossing) -> None:
        # In the set first: a close that comes after the look refuses the call.
        with self._lock:
            self._refuse_if_closed()
            self._calls.add(call)

        if self._loop.is_current():
            self._begin(call)
        else:
            context = copy_context()
            inside_of(self._loop, context)
            self._loop.post(partial(context.run, self._begin, call))

    def _begin(self, call: Crossing) -> None:
        with self._lock:
            if call not in self._calls:
                return  # refused by a close

            self._calls.discard(call)

        self._adopt(call.name, call.perform)


class Spawned(Generic[T]):
    """What `MainRuntime.spawn` has started. Awaiting it gives the result, on any loop, any number of times.

    Cancel safety: cancelling the wait does not cancel what was started.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Crossing) -> None:
        self._call = call

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._call.has_ended

    def __await__(self) -> Generator[Any, Any, T]:
        yield from self._call.ended().__await__()
        result: T = self._call.outcome()
        return result

    def __del__(self) -> None:
        self._call.drop()
