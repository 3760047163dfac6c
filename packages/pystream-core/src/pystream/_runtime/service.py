"""One run of a service, from the first step of its start to the last of its stop.

All of it happens in one task, so that a state opened here is closed where it was opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from pystream._runtime.definition import Definition
from pystream._runtime.shutdown import Shutdown
from pystream._runtime.startup import Startup
from pystream.errors import ServiceAborted, ServiceFailed
from pystream.health import HealthBoard, ServiceState


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
        self.board = HealthBoard()
        self.failure: ServiceFailed | None = None
        self.startup = Startup(self)
        self._shutdown: Shutdown | None = None
        self._stop_requested = anyio.Event()
        self._starting = anyio.CancelScope()
        self._started = anyio.Event()
        self._ended = anyio.Event()
        self._aborted = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the service beside the body of the context; stop it when the body ends.

        Raises:
            ServiceFailed: The start failed. What the body raises comes out as it is.

        Cancel safety: a cancellation aborts the service: what is in hand is cancelled and
        given back, hooks and brokers get a second each.
        """
        raised: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, name=f"pystream {self.definition.title}")
            try:
                await self._started.wait()
                if self.failure is None:
                    yield
                else:
                    raised = self.failure
            except anyio.get_cancelled_exc_class():
                self.abort()
                raise
            except Exception as error:
                raised = error
            finally:
                self.request_stop()
                with anyio.CancelScope(shield=True):
                    await self._ended.wait()

        if raised is not None:
            raise raised

    async def stopping(self) -> None:
        """Return when a stop was requested, by anybody."""
        await self._stop_requested.wait()

    async def ended(self) -> None:
        """Return when the last step of the stop is over."""
        await self._ended.wait()

    def request_stop(self) -> None:
        """Begin the graceful stop; also cuts a start short. Synchronous, idempotent."""
        self._stop_requested.set()
        self._starting.cancel()

    def abort(self, signum: int | None = None) -> None:
        """Cut the graceful stop short: cancel what is in hand, hurry through the rest. Synchronous.

        Args:
            signum: The signal that asked for it; the run then fails with `ServiceAborted`.
        """
        self._aborted = True
        if signum is not None and self.failure is None:
            self.failure = ServiceAborted(signum, self.definition.title)

        self.request_stop()
        if self._shutdown is not None:
            self._shutdown.abort()

    def fail(self, step: str, culprit: str, error: BaseException) -> None:
        """Stop because of a failure; the first one is the service's. Synchronous."""
        if self.failure is None:
            self.failure = ServiceFailed(step, culprit, [error])
            self.failure.__cause__ = error

        self.request_stop()

    async def _run(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
                    await self._live(tasks, stack)
            finally:
                self._finish()

    async def _live(self, tasks: TaskGroup, stack: AsyncExitStack) -> None:
        with self._starting:
            await self.startup.run(tasks, stack)

        started = self.startup.complete
        self._shutdown = Shutdown(self, aborted=self._aborted)
        if started and not self._stop_requested.is_set():
            self.board.phase(ServiceState.RUNNING)
            self._started.set()
            await self._stop_requested.wait()

        self.board.phase(ServiceState.SHUTTING_DOWN)
        if started:
            await self._shutdown.run(tasks, stack)
        else:
            await self._shutdown.unwind(tasks, stack)

    def _finish(self) -> None:
        if self.failure is None:
            self.board.phase(ServiceState.STOPPED)
        else:
            self.board.phase(ServiceState.FAILED, str(self.failure))

        self._stop_requested.set()
        self._started.set()
        self._ended.set()
