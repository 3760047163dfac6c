"""A call that one thread asks for, and the app's loop makes."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio

from pystream._callables import name_of
from pystream._loops import is_cancellation
from pystream.errors import ServiceStopped, StrayCancellation
from pystream.signal import Signal

logger = logging.getLogger("pystream.service")


async def result_of(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What `fn(*args)` returns, awaited if it is awaitable."""
    result = fn(*args)
    return await result if inspect.isawaitable(result) else result


class Crossing:
    """One call. `perform`, `cancel` and `refuse` belong to the app's loop, the rest to anybody.

    Args:
        fn: What is called.
        args: Its arguments.

    Attributes:
        name: Of `fn`, for logs.
        has_ended: Whether the outcome is there.
    """

    __slots__ = (
        "_args",
        "_cancelled",
        "_dropped",
        "_error",
        "_fn",
        "_lock",
        "_result",
        "_scope",
        "_told",
        "_waiters",
        "has_ended",
        "name",
    )

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.name: str = name_of(fn)
        self.has_ended: bool = False
        self._fn = fn
        self._args = args
        self._lock = threading.Lock()
        self._waiters: set[Signal] = set()
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self._dropped = False
        self._told = False
        self._result: Any = None
        self._error: BaseException | None = None

    async def ended(self) -> None:
        """Return when the outcome is there. Cancel safety: cancelling it changes nothing."""
        signal = Signal()
        with self._lock:
            if self.has_ended:
                return

            self._waiters.add(signal)

        try:
            await signal.wait()
        finally:
            with self._lock:
                self._waiters.discard(signal)

    def outcome(self) -> Any:
        """Return what the function has returned, or raise what it has raised."""
        self._told = True
        if self._error is not None:
            raise self._error

        return self._result

    def drop(self) -> None:
        """Nobody will ask for the outcome any more; an error that nobody was told of is logged."""
        with self._lock:
            self._dropped = True
            lost = self.has_ended and not self._told

        if lost:
            self._log()

    def cancel(self) -> None:
        """Cancel the call. Synchronous, idempotent."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def refuse(self) -> None:
        """End the call before it has begun, since the app stops. Synchronous."""
        self._end(None, ServiceStopped(f"the app has stopped, and {self.name} was not run on its loop"))

    async def perform(self) -> None:
        """Make the call, and keep what comes of it."""
        if self._cancelled:
            self._end(None, None)
            return

        result, error = None, None
        try:
            with anyio.CancelScope() as self._scope:
                result = await result_of(self._fn, self._args)
        except BaseException as raised:  # also an exit: it belongs to the caller, not to the app's loop
            if is_cancellation(raised):
                self._end(None, ServiceStopped(f"the app has stopped, and {self.name} was cancelled on its loop"))
                raise

            error = self._of_the_function(raised)

        self._end(result, error)

    def _of_the_function(self, error: BaseException) -> BaseException:
        if not isinstance(error, anyio.get_cancelled_exc_class()):
            return error

        stray = StrayCancellation(f"{self.name} was cancelled by nobody on the app's loop")
        stray.__cause__ = error
        return stray

    def _end(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            self._result, self._error = result, error
            self.has_ended = True
            waiters = list(self._waiters)
            lost = self._dropped

        for waiter in waiters:
            waiter.wake_from_thread()

        if lost:
            self._log()

    def _log(self) -> None:
        if self._error is not None:
            logger.error("%s failed on the app's loop", self.name, exc_info=self._error)
