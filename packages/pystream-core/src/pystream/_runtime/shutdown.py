"""The stop of a service, in seven steps; the order is the same for every trigger.

The trigger is the first; then the hooks `on_shutdown`, no new deliveries, what is in hand,
what follows the settlements, the brokers, the hooks `after_shutdown`. The state, which its
holder closes, comes after all of it.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from pystream._hooks import Hook
from pystream._loops import is_cancellation
from pystream._runtime.budget import Budget
from pystream.hookspecs import ServiceEvent

if TYPE_CHECKING:
    from pystream._runtime.service import Service

BROKER_BOUND = 10.0
"""Seconds that the close of a subscription or a broker gets."""

BOUND_WHEN_ABORTED = 1.0
"""Seconds that a hook step, a close, or the closing of the state still gets in an aborted stop."""

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
        self._closing: set[anyio.CancelScope] = set()

    def abort(self) -> None:
        """Wait for nothing any more, and hurry what is closed just now. Synchronous, idempotent."""
        if self._aborted:
            return

        self._aborted = True
        if self._waiting is not None:
            self._waiting.cancel()

        hurry = anyio.current_time() + BOUND_WHEN_ABORTED
        for scope in self._closing:
            scope.deadline = min(scope.deadline, hurry)

    async def run(self, tasks: TaskGroup) -> None:
        """The stop of a service that ran."""
        startup = self._service.startup
        await self._call(startup.hooks.on_shutdown)
        await self._wind_down()
        await self._call(startup.hooks.after_shutdown)
        await self._cancel_the_rest(tasks)

    async def unwind(self, tasks: TaskGroup) -> None:
        """The stop of a service that did not come to run: the same without hooks."""
        await self._wind_down()
        await self._cancel_the_rest(tasks)

    async def _wind_down(self) -> None:
        budget = Budget.begin(self._service.definition.shutdown_timeout)
        for subscription in self._service.startup.loops:
            subscription.stop()

        await self._finish_loops(budget)
        with self._until(-math.inf if self._aborted else budget.for_tasks(anyio.current_time())):
            await self._drain_tracked()

        await self._close_brokers()

    async def _finish_loops(self, budget: Budget) -> None:
        loops = self._service.startup.loops
        with self._until(-math.inf if self._aborted else budget.for_deliveries):
            for subscription in loops:
                await subscription.finished()

        late = [subscription for subscription in loops if subscription.running]
        if not late:
            return

        logger.warning(
            "%s: %d of %d subscriptions had not finished when the %s (%s); "
            "they are cancelled, and what they do not finish goes back unsettled",
            self._service.definition.title,
            len(late),
            len(loops),
            "shutdown was aborted" if self._aborted else "time for the shutdown was spent",
            ", ".join(subscription.name for subscription in late),
        )
        for subscription in late:
            subscription.cancel()

        for subscription in late:
            await subscription.finished()

    async def _drain_tracked(self) -> None:
        """Wait for what follows settlements: on the threads first, since it may start something on the app's loop."""
        startup = self._service.startup
        for subscription in startup.loops:
            await subscription.drained()

        if startup.tracker is not None:
            await startup.tracker.drained()

    async def _close_brokers(self) -> None:
        """Every subscription first, then the brokers in reverse order of their registration."""
        startup = self._service.startup
        self._give_back_held()
        async with anyio.create_task_group() as closing:
            for _, subscription in startup.subscriptions:
                closing.start_soon(self._close, subscription.name, subscription.close)

        for mounted, broker in reversed(startup.brokers):
            await self._close(mounted.name, broker.close)

    def _give_back_held(self) -> None:
        subscriptions = self._service.startup.subscriptions
        counts = {subscription.name: subscription.give_back_held() for _, subscription in subscriptions}
        held = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
        if held:
            logger.warning(
                "%s: held for a delay when the %s, and given back unsettled (%s)",
                self._service.definition.title,
                "shutdown was aborted" if self._aborted else "time for the shutdown was spent",
                held,
            )

    async def _close(self, name: str, close: Callable[[], Awaitable[None]]) -> None:
        with anyio.move_on_after(self._bound(BROKER_BOUND)) as scope:
            self._closing.add(scope)
            try:
                await close()
            except BaseException as error:  # also an exit: it must not skip the rest of the stop
                if is_cancellation(error):
                    raise

                self._service.fail("close", name, error)
            finally:
                self._closing.discard(scope)

        if scope.cancelled_caught:
            late = TimeoutError(f"closing took longer than {self._bound(BROKER_BOUND):g} s")
            self._service.fail("close", name, late)

    async def _call(self, hooks: tuple[Hook, ...]) -> None:
        calls = self._service.startup.calls
        if not hooks or calls is None:
            return

        definition = self._service.definition
        event = ServiceEvent(title=definition.title, version=definition.version, failure=self._service.failure)
        with self._until(math.inf):
            await calls.call_all(hooks, event, self._bound(definition.hook_timeout))

    async def _cancel_the_rest(self, tasks: TaskGroup) -> None:
        """Cancel the tracked tasks, and wait for them: they may use the state, which is closed next."""
        startup = self._service.startup
        tracker = startup.tracker
        left = [name for _, subscription in startup.subscriptions for name in subscription.tracked]
        left.extend(tracker.running if tracker is not None else [])
        if left:
            logger.warning(
                "%s: cancelled at the end of the shutdown: %s", self._service.definition.title, ", ".join(left)
            )

        async with anyio.create_task_group() as ending:
            for _, subscription in startup.subscriptions:
                ending.start_soon(subscription.end)

        if startup.main is not None:
            startup.main.close()

        if tracker is None or not tracker.running:
            return

        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await tracker.drained()

    def _bound(self, seconds: float) -> float:
        return min(seconds, BOUND_WHEN_ABORTED) if self._aborted else seconds

    @contextlib.contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        """A wait that the deadline, or an abort, cuts short."""
        with anyio.CancelScope(deadline=deadline) as scope:
            self._waiting = scope
            try:
                yield
            finally:
                self._waiting = None
