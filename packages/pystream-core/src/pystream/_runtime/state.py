"""Opens the app's state, whatever form it was given in, and closes it again."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any


async def open_state(state: Any, stack: AsyncExitStack) -> Any:
    """The value that `State[T]` parameters receive.

    Args:
        state: A value; an async context manager, which is entered; or a callable without
            arguments, whose result is awaited if it is awaitable and entered if it is an
            async context manager. A generator function with one `yield`, async or not, is
            a context manager.
        stack: Closes what was entered, in the task that calls this.
    """
    if inspect.isasyncgenfunction(state):
        return await stack.enter_async_context(asynccontextmanager(state)())

    if inspect.isgeneratorfunction(state):
        return stack.enter_context(contextmanager(state)())

    if _is_async_context_manager(state):
        return await stack.enter_async_context(state)

    if not callable(state):
        return state

    made = state()
    if inspect.isawaitable(made):
        made = await made

    return await stack.enter_async_context(made) if _is_async_context_manager(made) else made


def _is_async_context_manager(value: Any) -> bool:
    return not isinstance(value, type) and isinstance(value, AbstractAsyncContextManager)
