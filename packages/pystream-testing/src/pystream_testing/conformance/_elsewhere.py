"""Running things on another thread: with a loop of its own that stops right after, or without a loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from pystream.signal import Signal

from pystream_testing.conformance._failure import ConformanceFailure

__all__ = ["in_thread", "on_other_loop"]

T = TypeVar("T")


async def on_other_loop(fn: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """Await `fn()` on a new asyncio loop in a new thread, both of which end right after.

    Raises:
        ConformanceFailure: It took longer than `seconds`.
    """

    async def bounded() -> T:
        with anyio.fail_after(seconds):
            return await fn()

    try:
        return await in_thread(lambda: anyio.run(bounded), seconds + 0.5, what)
    except TimeoutError as error:
        raise ConformanceFailure(f"{what} took longer than {seconds:g} s on another loop") from error


async def in_thread(fn: Callable[[], T], seconds: float, what: str) -> T:
    """Call `fn()` in a new thread without a loop.

    Raises:
        ConformanceFailure: It took longer than `seconds`.
    """
    answers: list[T] = []
    errors: list[BaseException] = []
    ended = Signal()

    def call() -> None:
        try:
            answers.append(fn())
        except BaseException as error:  # brought to the task that waits
            errors.append(error)
        finally:
            ended.wake_from_thread()

    # Not a worker thread of anyio: a call that never returns must not keep the process.
    thread = threading.Thread(target=call, name="conformance", daemon=True)
    thread.start()
    with anyio.move_on_after(seconds):
        await ended.wait()
        thread.join()

    if errors:
        raise errors[0]

    if not answers:
        raise ConformanceFailure(f"{what} took longer than {seconds:g} s")

    return answers[0]
