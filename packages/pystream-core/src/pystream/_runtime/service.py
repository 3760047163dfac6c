"""One run of a service, from the first step of its start to the last of its stop.

Two tasks share it: one opens the state, holds it and closes it; the other, begun while the
state is open, lives the rest. So a state may hold a task group, whose scope belongs to the
task that entered it, and a state that breaks cancels its holder and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
from anyio.abc import TaskGroup

from pystream._loops import is_cancellation
from pystream._runtime.definition import Definition
from pystream._runtime.shutdown import BOUND_WHEN_ABORTED, Shutdown
from pystream._runtime.startup import Startup
from pystream._runtime.state import open_state
from pystream.errors import ServiceAborted, ServiceFailed
from pystream.health import HealthBoard, ServiceState
from pystream.parameters import MISSING

logger = logging.getLogger("pystream.service")


class Service:
    """A run of the defined service.

    Args:
        definition: What it is made of.

    Attributes:
        board: Its condition.
        failure: Why it failed, or none.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.board: HealthBoard = HealthBoard()
        self.failure: ServiceFailed | None = None
        self.startup: Startup = Startup(self)
        self._shutdown: Shutdown | None = None
        self._stop_requested = anyio.Event()
        self._opening = anyio.CancelScope()
        self._holding = anyio.CancelScope()
        self._starting = anyio.CancelScope()
        self._started = anyio.Event()
        self._lived = anyio.Event()
        self._ended = anyio.Event()
        self._aborted = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the service beside the body of the context; stop it when the body ends.

        Raises:
            ServiceFailed: The start failed. What the body raises comes out as it is.

        Cancel safety: a cancellation, also while the stop goes on, aborts the service: what is
        in hand is cancelled and given back, hooks and brokers get a second each.
        """
        raised: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, name=f"pystream {self.definition.title}")
            try:
                await self._started.wait()
                if self.failure is None:
                    yield
                else:
                    raised = self.failure
            except BaseException as error:
                if is_cancellation(error):
                    self.abort()
                    raise

                raised = error  # raised below: the task group would wrap it
            finally:
                self.request_stop()
                await self._leave()

        if raised is not None:
            raise raised

    async def _leave(self) -> None:
        """Wait for the last step of the stop; a cancellation aborts it and is passed on once it is over."""
        try:
            await self._ended.wait()
        except BaseException:
            self.abort()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()

            raise

    async def stopping(self) -> None:
        """Return when a stop was requested, by anybody."""
        await self._stop_requested.wait()

    async def ended(self) -> None:
        """Return when the last step of the stop is over."""
        await self._ended.wait()

    def request_stop(self) -> None:
        """Announce the stop; also cuts a start short. Synchronous, idempotent."""
        if self._stop_requested.is_set():
            return

        self.board.phase(ServiceState.SHUTTING_DOWN)
        self._stop_requested.set()
        self._opening.cancel()
        self._starting.cancel()

    def abort(self, signum: int | None = None) -> None:
        """Cut the graceful stop short: cancel what is in hand, hurry through the rest. Synchronous.

        Args:
            signum: The signal that asked for it; the run then fails with `ServiceAborted`.
        """
        if self._ended.is_set():
            return

        self._aborted = True
        if signum is not None and self.failure is None:
            self.failure = ServiceAborted(signum, self.definition.title)

        self.request_stop()
        if self._shutdown is not None:
            self._shutdown.abort()

        if self._lived.is_set():
            self._hurry_the_state()

    def fail(self, step: str, culprit: str, error: BaseException) -> None:
        """Stop because of a failure; the first one is the service's, later ones join it. Synchronous."""
        errors = tuple(_leaves(error))
        if self.failure is None:
            self.failure = ServiceFailed(step, culprit, errors)
            self.failure.__cause__ = error
        else:
            logger.error("%s: %s failed too (%s)", self.definition.title, culprit, step, exc_info=error)
            self.failure.errors += errors
            self.failure.args = (self.failure.step, self.failure.culprit, self.failure.errors)

        self.request_stop()

    async def _run(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as tasks:
                    await self._hold_state(tasks)
            finally:
                self._finish()

    async def _hold_state(self, tasks: TaskGroup) -> None:
        step = "plugins"
        try:
            self.startup.load()
            step = "state"
            with self._opening, self._holding:
                async with AsyncExitStack() as stack:
                    state = await self._open_state(stack)
                    self._holding.shield = True  # from here on the state is closed, not cut short
                    tasks.start_soon(self._live, tasks, state, name=f"pystream {self.definition.title}")
                    step = "live"
                    await self._lived.wait()
                    if self._aborted:
                        self._hurry_the_state()
        except BaseException as error:
            if is_cancellation(error):
                raise

            await self._state_failed(step, error)

    async def _open_state(self, stack: AsyncExitStack) -> Any:
        definition = self.definition
        return await open_state(definition.state, stack) if definition.has_state else MISSING

    async def _state_failed(self, step: str, error: BaseException) -> None:
        title = self.definition.title
        if step != "live":
            self.fail(step, title, error)
        elif self._lived.is_set():
            logger.error("%s: closing the state failed", title, exc_info=error)
        else:
            self.fail("state", title, error)
            with anyio.CancelScope(shield=True):
                await self._lived.wait()

    def _hurry_the_state(self) -> None:
        self._holding.deadline = min(self._holding.deadline, anyio.current_time() + BOUND_WHEN_ABORTED)

    async def _live(self, tasks: TaskGroup, state: Any) -> None:
        try:
            with self._starting:
                await self.startup.run(tasks, state)

            await self._run_and_stop(tasks)
        finally:
            self._lived.set()

    async def _run_and_stop(self, tasks: TaskGroup) -> None:
        started = self.startup.complete
        self._shutdown = Shutdown(self, aborted=self._aborted)
        if started and not self._stop_requested.is_set():
            self.board.phase(ServiceState.RUNNING)
            self._started.set()
            await self._stop_requested.wait()

        if started:
            await self._shutdown.run(tasks)
        else:
            await self._shutdown.unwind(tasks)

    def _finish(self) -> None:
        self.request_stop()
        if self.failure is None:
            self.board.phase(ServiceState.STOPPED)
        else:
            self.board.phase(ServiceState.FAILED, str(self.failure))

        self._started.set()
        self._ended.set()


def _leaves(error: BaseException) -> list[BaseException]:
    """What was raised, out of the groups that task groups make of it."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in _leaves(member)]

    return [error]
