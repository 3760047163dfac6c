"""Calls the frozen start and stop hooks, in order, each step within its bound."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import anyio

from pystream._hooks import Hook
from pystream._loops import is_cancellation
from pystream.hookspecs import ServiceEvent

logger = logging.getLogger("pystream.hooks")


async def call(hook: Hook, event: ServiceEvent) -> None:
    """Call one hook; raises what it raises."""
    result: Any = hook.fn(event) if hook.takes_event else hook.fn()
    if inspect.isawaitable(result):  # also of a plain function that wraps a coroutine function
        await result


async def call_all(hooks: tuple[Hook, ...], event: ServiceEvent, bound: float) -> None:
    """Call the hooks of one stop step; what fails is logged and stops nothing.

    Args:
        hooks: In the order of their calls.
        event: What they are told.
        bound: Seconds for all of them together; then the running one is cancelled and the rest skipped.
    """
    running = ""
    with anyio.move_on_after(bound) as scope:
        for hook in hooks:
            running = hook.name
            try:
                await call(hook, event)
            except BaseException as error:  # also an exit: it must not skip the rest of the stop
                if is_cancellation(error):
                    raise

                logger.error("the hook %s failed: %s", hook.name, type(error).__name__, exc_info=error)

    if scope.cancelled_caught:
        logger.error("the hook %s was cancelled after %g s; later ones of its step were skipped", running, bound)
