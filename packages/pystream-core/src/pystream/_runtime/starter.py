"""Starts a delivery's coroutine in a context of its own, without a task.

Most deliveries never suspend: the first step finishes the coroutine, and the caller goes on
with the next. Those that do suspend come back as an awaitable that takes every further
step in the same context. Measured against an awaited driver this costs 310 ns instead of
510 to 580.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, TypeAlias, TypeVar

DeliveryT = TypeVar("DeliveryT")

Start: TypeAlias = "Callable[[DeliveryT], Awaitable[None] | None]"
"""Starts the work on one delivery; answers none if it is finished, else what goes on with it."""

_FINISHED: Final = object()


def in_fresh_context(process: Callable[[DeliveryT], Coroutine[Any, Any, None]], base: Context) -> Start[DeliveryT]:
    """A function that starts `process` in a copy of `base`.

    Args:
        process: The pipeline's coroutine function.
        base: The context variables of the application. What a delivery sets is seen by all
            that runs for it, and by no other delivery.
    """
    copy, finished = base.copy, _FINISHED

    def start(delivery: DeliveryT) -> Awaitable[None] | None:
        context = copy()
        steps = process(delivery).__await__()
        # `next` with a default turns the end of the coroutine into a value, in C.
        first = context.run(next, steps, finished)
        if first is finished:
            return None

        return _go_on(context, steps, first)

    return start


@types.coroutine
def _go_on(context: Context, steps: Generator[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    send, throw = steps.send, steps.throw
    while True:
        step: Callable[[Any], Any] = send
        try:
            argument = yield waits_for
        except BaseException as error:  # a cancellation, or what the loop throws in: the coroutine's affair
            step, argument = throw, error

        try:
            waits_for = context.run(step, argument)
        except StopIteration:
            return
