"""An operating system's thread with an event loop of its own, which handles deliveries to their end.

Its loop is of the same kind as the app's. The app's loop, its home, starts the thread, is told
how far it has come, and may cancel it; whatever crosses over is posted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import anyio

from pystream._loops import Loop, current_loop, in_cancelled_scope, is_cancellation
from pystream._runtime.pauses import Pauses
from pystream._runtime.shelter import CANCELLED_BOUND
from pystream._runtime.tracker import Tracker
from pystream.clock import LoopClock
from pystream.errors import PyStreamError, SubscribeError

__all__ = ["PATIENCE", "DedicatedThread", "Prepare", "ThreadSide", "Work", "abandon_late"]

PATIENCE: Final = CANCELLED_BOUND + 0.5
"""Seconds that a cancelled thread has: as long as any handler that is cancelled, and a little; then it is abandoned."""

logger = logging.getLogger("pystream.threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSide:
    """What belongs to one dedicated thread, made on its loop.

    Attributes:
        loop: Its event loop.
        clock: That loop's time.
        tracker: Runs what comes after a settlement; the thread waits for it before it ends.
        pauses: The sleeps between runs in place; a stop of the subscription ends them.
    """

    loop: Loop
    clock: LoopClock
    tracker: Tracker
    pauses: Pauses


Work: TypeAlias = "Callable[[], Awaitable[None]]"
"""Handles deliveries; returns when there are none to come."""

Prepare: TypeAlias = "Callable[[ThreadSide], Work]"
"""Called once on the thread's loop, before anything is handled there; what it raises refuses the start."""


class DedicatedThread:
    """One thread. Everything public belongs to the home loop, on which it is made.

    Args:
        name: How the thread is called.
        prepare: Makes the work.
        max_tracked: How many deliveries may have tasks running on it after their settlement.
        died: Told when the work has raised.

    Attributes:
        name: As given.
        handled: Set when the work is over.
        drained: Set when what came after the settlements is over, too.
        ended: Set when the loop is closed, and with it whatever else ran there.
        abandoned: Whether it did not react to a cancellation, and nobody waits for it any more.
    """

    def __init__(self, name: str, prepare: Prepare, *, max_tracked: int, died: Callable[[BaseException], None]) -> None:
        self.name = name
        self.handled: anyio.Event = anyio.Event()
        self.drained: anyio.Event = anyio.Event()
        self.ended: anyio.Event = anyio.Event()
        self.abandoned = False
        self._prepare = prepare
        self._max_tracked = max_tracked
        self._died = died
        self._home = current_loop()
        self._opened = anyio.Event()
        self._refusal: BaseException | None = None
        self._side: ThreadSide | None = None
        self._work: anyio.CancelScope
        self._all: anyio.CancelScope

    async def open(self) -> None:
        """Start the thread, and return when its work is prepared.

        Raises:
            SubscribeError: The system gives no thread or no loop.
            PyStreamError: What the preparation has raised.

        Cancel safety: it cannot be cancelled; nothing in it waits for anybody outside.
        """
        try:
            threading.Thread(target=self._run, name=self.name, daemon=True).start()
        except RuntimeError as error:
            self._finish(error)

        with anyio.CancelScope(shield=True):
            await self._opened.wait()

        refusal = self._refusal
        if isinstance(refusal, PyStreamError):
            raise refusal

        if refusal is not None:
            raise SubscribeError(f"the thread {self.name!r} could not be started: {refusal}") from refusal

    @property
    def running(self) -> list[str]:
        """The names of the tracked calls that have not ended."""
        return self._side.tracker.running if self._side is not None else []

    def post(self, callback: Callable[[ThreadSide], object]) -> None:
        """Call on the thread's loop soon; without effect before it is open and after it has ended. Synchronous."""
        if self._side is not None:
            self._side.loop.post(partial(callback, self._side))

    def cancel_work(self) -> None:
        """Cancel what is handled now; what follows settlements goes on. Synchronous, idempotent."""
        self.post(lambda _: self._work.cancel())

    def cancel(self) -> None:
        """Cancel everything on the thread. Synchronous, idempotent."""
        self.post(lambda _: self._all.cancel())

    def _finish(self, error: BaseException | None) -> None:
        if error is not None and self._opened.is_set():
            self._died(error)
        elif error is not None:
            self._refusal = error

        for event in (self._opened, self.handled, self.drained, self.ended):
            event.set()

    # What follows runs on the thread.

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._home.run_another(self._live)
        except BaseException as raised:
            error = raised

        self._home.post(partial(self._finish, error))

    async def _live(self) -> None:
        self._work, self._all = anyio.CancelScope(), anyio.CancelScope()
        with self._all:
            async with anyio.create_task_group() as tasks:
                clock = LoopClock()
                tracker = Tracker(tasks, self._max_tracked)
                side = ThreadSide(loop=current_loop(), clock=clock, tracker=tracker, pauses=Pauses(clock))
                try:
                    work = self._prepare(side)
                except BaseException as error:  # kept as it is: the task group would wrap it
                    self._refusal = error
                    return

                self._side = side
                self._home.post(self._opened.set)
                await self._do(work)
                self._home.post(self.handled.set)
                await tracker.drained()
                self._home.post(self.drained.set)

    async def _do(self, work: Work) -> None:
        try:
            with self._work:
                await work()
        except BaseException as error:  # nobody awaits this thread, so nobody else would see it
            if is_cancellation(error) and in_cancelled_scope():
                raise

            self._home.post(partial(self._died, error))


async def abandon_late(
    threads: Sequence[DedicatedThread], stage: Callable[[DedicatedThread], anyio.Event]
) -> list[DedicatedThread]:
    """Wait until cancelled threads have come to a stage, for `PATIENCE` at most; answers those that have not.

    They are abandoned with a WARNING. Their threads are daemons, so they do not keep the process.

    Args:
        threads: The cancelled ones; what was abandoned before is passed over.
        stage: The event that tells of it.

    Cancel safety: it cannot be cancelled; it has a bound of its own.
    """
    waited_for = [thread for thread in threads if not thread.abandoned]
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + PATIENCE):
        for thread in waited_for:
            await stage(thread).wait()

    late = [thread for thread in waited_for if not stage(thread).is_set()]
    for thread in late:
        thread.abandoned = True
        logger.warning(
            "%s did not react to its cancellation within %g s and is abandoned; what it still settles is refused",
            thread.name,
            PATIENCE,
        )

    return late
