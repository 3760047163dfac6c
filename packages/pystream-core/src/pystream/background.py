"""`Background`: tasks of a plugin that go on after the call that has started them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio

from pystream._loops import current_loop

__all__ = ["Background", "Library", "running_library"]

_log = logging.getLogger("pystream.background")

Library: TypeAlias = Literal["asyncio", "trio"]
"""Whose event loop runs; uvloop is asyncio's."""


def running_library() -> Library:
    """Whose event loop runs in this thread: for a plugin whose client knows one of them only.

    Raises:
        RuntimeError: No loop runs in this thread.
    """
    return current_loop().library


class Background:
    """Tasks of a plugin, on asyncio, uvloop and trio: a reader, a writer, a keeper of leases.

    A connection and a subscriber are opened in one task and closed in another, so a task
    group cannot hold what runs in between. Belongs to the loop on which it is made. Its tasks
    see the context variables of the moment it was made, whoever starts them.

    Raises:
        RuntimeError: No loop runs in this thread.
    """

    __slots__ = ("_closed", "_context", "_ended", "_loop", "_running")

    def __init__(self) -> None:
        self._loop = current_loop()
        self._context = copy_context()
        self._running: dict[anyio.CancelScope, object] = {}
        self._closed = False
        self._ended: anyio.Event | None = None

    def __len__(self) -> int:
        """How many of the tasks have not ended."""
        return len(self._running)

    def start(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: str) -> None:
        """Start `fn(*args)` as a task. Synchronous; only on the owner's loop.

        Args:
            fn: Its result is dropped. What it raises is logged as an ERROR: a task has to
                tell its failures by itself, for example through `Subscriber.wait`.
            *args: Handed to `fn` as they are.
            name: What the task is called in logs and debuggers.

        Raises:
            RuntimeError: It was closed.
        """
        if self._closed:
            raise RuntimeError(f"background task {name!r} cannot start: its Background was closed")

        scope = anyio.CancelScope()
        self._running[scope] = None
        # Kept while it runs: asyncio itself holds its tasks weakly.
        self._running[scope] = self._loop.spawn(partial(self._run, scope, name, fn, args), name, self._context.copy())

    async def close(self) -> None:
        """Cancel every task and return when all have ended. Idempotent; not from one of the tasks.

        Cancel safety: a cancelled close has cancelled every task, and does not wait for them.
        """
        self._closed = True
        for scope in self._running:
            scope.cancel()

        if self._running:
            self._ended = self._ended or anyio.Event()
            await self._ended.wait()

    async def _run(
        self, scope: anyio.CancelScope, name: str, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> None:
        try:
            with scope:
                await fn(*args)
        except Exception as error:  # raised on, it would end trio's whole run, and nobody's on asyncio
            _log.error("background task %s failed", name, exc_info=error)
        finally:
            del self._running[scope]
            if self._ended is not None and not self._running:
                self._ended.set()
