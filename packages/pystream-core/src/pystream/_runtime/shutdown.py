"""The stop of a service, in seven steps; the order is the same for every trigger.

The trigger is the first; then the hooks `on_shutdown`, no new deliveries, what is in hand,
what follows the settlements, the brokers, the hooks `after_shutdown`, and last the state.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from pystream._hooks import Hook
from pystream._runtime.budget import Budget
from pystream._runtime.definition import MountedBroker
from pystream._runtime.hooks import call_all
from pystream.hookspecs import ServiceEvent

if TYPE_CHECKING:
    from pystream._runtime.service import Service

_BROKER_BOUND = 10.0
_BOUND_WHEN_ABORTED = 1.0

logger = logging.getLogger("pystream.service")


class Shutdown:
    """Stops what a `Startup` has opened.

    Args:
        service: Whose stop this is.
        aborted: Whether the service was aborted before the stop began.
    """

    def __init__(self, service: Service, *, aborted: bool) -> None:
        self._service = service
        self._aborted = aborted
        self._waiting: anyio.CancelScope | None = None

    def abort(self) -> None:
        """Wait for nothing any more. Synchronous, idempotent."""
        self._aborted = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def run(self, tasks: TaskGroup, stack: AsyncExitStack) -> None:
        """The stop of a service that ran."""
        startup = self._service.startup
        await self._call(startup.hooks.on_shutdown)
        await self._wind_down()
        await self._call(startup.hooks.after_shutdown)
        await self._close_state(stack)
        self._cancel_the_rest(tasks)

    async def unwind(self, tasks: TaskGroup, stack: AsyncExitStack) -> None:
        """The stop of a service that did not come to run: the same without hooks."""
        await self._wind_down()
        await self._close_state(stack)
        self._cancel_the_rest(tasks)

    async def _wind_down(self) -> None:
        budget = Budget.begin(self._service.definition.shutdown_timeout)
        for _, subscription in self._service.startup.subscriptions:
            subscription.stop()

        await self._finish_loops(budget)
        tracker = self._service.startup.tracker
        if tracker is not None:
            with self._until(budget.for_all):
                await tracker.drained()

        await self._close_brokers()

    async def _finish_loops(self, budget: Budget) -> None:
        subscriptions = [subscription for _, subscription in self._service.startup.subscriptions]
        with self._until(budget.for_deliveries):
            for subscription in subscriptions:
                await subscription.finished()

        late = [subscription for subscription in subscriptions if subscription.running]
        if not late:
            return

        logger.warning(
            "%s: %d of %d subscriptions still had deliveries in hand when the time for the shutdown was spent (%s); "
            "they are cancelled, and the deliveries go back unsettled",
            self._service.definition.title,
            len(late),
            len(subscriptions),
            ", ".join(subscription.name for subscription in late),
        )
        for subscription in late:
            subscription.cancel()

        for subscription in late:
            await subscription.finished()

    async def _close_brokers(self) -> None:
        """Every subscription first, then the brokers in reverse order of their registration."""
        startup = self._service.startup
        async with anyio.create_task_group() as closing:
            for mounted, subscription in startup.subscriptions:
                closing.start_soon(self._close, mounted, subscription.name, subscription.close)

        for mounted, broker in reversed(startup.brokers):
            await self._close(mounted, mounted.name, broker.close)

    async def _close(self, mounted: MountedBroker, name: str, close: Callable[[], Awaitable[None]]) -> None:
        bound = _BOUND_WHEN_ABORTED if self._aborted else _BROKER_BOUND
        try:
            with anyio.fail_after(bound):
                await close()
        except TimeoutError:
            error = TimeoutError(f"closing took longer than {bound:g} s")
            self._service.fail("close", name, error)
        except Exception as error:
            self._service.fail("close", name, error)

    async def _call(self, hooks: tuple[Hook, ...]) -> None:
        if not hooks:
            return

        definition = self._service.definition
        event = ServiceEvent(title=definition.title, version=definition.version, failure=self._service.failure)
        with self._until(math.inf):
            await call_all(hooks, event, definition.hook_timeout)

    async def _close_state(self, stack: AsyncExitStack) -> None:
        try:
            await stack.aclose()
        except Exception as error:
            logger.error("%s: closing the state failed", self._service.definition.title, exc_info=error)

    def _cancel_the_rest(self, tasks: TaskGroup) -> None:
        tracker = self._service.startup.tracker
        if tracker is not None and tracker.running:
            logger.warning(
                "%s: cancelled at the end of the shutdown: %s",
                self._service.definition.title,
                ", ".join(tracker.running),
            )

        tasks.cancel_scope.cancel()

    @contextlib.contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        """A wait that the deadline, or an abort, cuts short."""
        with anyio.CancelScope(deadline=-math.inf if self._aborted else deadline) as scope:
            self._waiting = scope
            try:
                yield
            finally:
                self._waiting = None
