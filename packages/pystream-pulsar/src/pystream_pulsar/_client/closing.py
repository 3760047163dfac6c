"""Closing on a server that may not answer: all at once, under one deadline, never raising."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import anyio

from pystream_pulsar._client.callbacks import Answer

__all__ = ["Call", "call_all"]

Call: TypeAlias = "Callable[[Callable[..., None]], Any]"
"""An asynchronous call of the binding that takes nothing but a callback."""


async def call_all(calls: Iterable[Call], *, deadline: float) -> None:
    """Make all calls at once and return when all are answered, or at the deadline.

    A cancelled caller gets its cancellation only afterwards: what is closed half-way aborts
    the process at its exit.

    Args:
        calls: Each is made, whether the others answer or not.
        deadline: By the clock of `anyio.current_time`.
    """
    answers = [_begin(call) for call in calls]
    with anyio.CancelScope(deadline=deadline, shield=True):
        for answer in answers:
            await answer.wait()


def _begin(call: Call) -> Answer:
    answer = Answer()
    try:
        call(answer.callback)
    except Exception:
        answer.callback()  # refused at once, as a closed handle may do: nothing to wait for

    return answer
