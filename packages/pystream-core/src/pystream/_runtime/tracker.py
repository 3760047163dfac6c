"""What comes after a settlement: tasks that the service counts, bounds and waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup

from pystream._loops import is_cancellation

Call: TypeAlias = "tuple[str, Callable[..., Awaitable[Any]], tuple[Any, ...]]"
"""A name for the log, a coroutine function, and its arguments."""


class Tracker:
    """Runs calls as tasks, at most so many deliveries' worth at once.

    Args:
        tasks: The group they run in.
        limit: How many places there are, 1 or more.

    Attributes:
        limit: As given.
    """

    def __init__(self, tasks: TaskGroup, limit: int) -> None:
        self.limit = limit
        self._tasks = tasks
        self._places = anyio.Semaphore(limit, fast_acquire=True)
        self._running: dict[int, str] = {}
        self._serial = 0
        self._idle = anyio.Event()

    async def reserve(self) -> None:
        """Take a place, waiting for one if all are taken. Cancel safety: a cancelled wait takes none."""
        await self._places.acquire()

    def start(self, calls: list[Call], failed: Callable[[str, BaseException], None]) -> None:
        """Run the calls (one or more) in the caller's context; the place is free after the last."""
        left = len(calls)

        def finished() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._places.release()

        for call in calls:
            self._launch(call, failed, finished)

    def adopt(self, call: Call, failed: Callable[[str, BaseException], None]) -> None:
        """Run a call that has a bound of its own, and takes no place; it is waited for like the others."""
        self._launch(call, failed, _no_place)

    def forgo(self) -> None:
        """Give a place back for which nothing was started."""
        self._places.release()

    def _launch(self, call: Call, failed: Callable[[str, BaseException], None], finished: Callable[[], None]) -> None:
        self._serial += 1
        self._running[self._serial] = call[0]
        self._tasks.start_soon(self._run, self._serial, call, failed, finished, name=call[0])

    async def _run(
        self, serial: int, call: Call, failed: Callable[[str, BaseException], None], finished: Callable[[], None]
    ) -> None:
        name, fn, args = call
        try:
            await fn(*args)
        except BaseException as error:  # also an exit: a continuation must not take the service with it
            if is_cancellation(error):
                raise

            failed(name, error)
        finally:
            del self._running[serial]
            finished()
            if not self._running:
                self._idle.set()

    @property
    def running(self) -> list[str]:
        """The names of the calls that have not ended."""
        return list(self._running.values())

    async def drained(self) -> None:
        """Return when nothing runs. Cancel safety: cancelling it changes nothing."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()


def _no_place() -> None:
    """Nothing is given back."""
