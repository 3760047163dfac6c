"""The start of a service: state, hooks, brokers, subscriptions, hooks."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from anyio import get_cancelled_exc_class
from anyio.abc import TaskGroup

from pystream import _hooks
from pystream._runtime.definition import MountedBroker
from pystream._runtime.hooks import call
from pystream._runtime.state import open_state
from pystream._runtime.subscription import Subscription
from pystream._runtime.tracker import Tracker
from pystream.clock import LoopClock
from pystream.hookspecs import ServiceEvent
from pystream.parameters import MISSING, Surroundings
from pystream.plugins import load_plugins
from pystream.protocols import ConnectedBroker

if TYPE_CHECKING:
    from pystream._runtime.service import Service


class Startup:
    """Opens everything in order; remembers what is open, for the stop.

    Attributes:
        hooks: The frozen table; empty until the plugins are loaded.
        brokers: The connected ones with their definitions, in order.
        subscriptions: The open ones with their brokers, in order.
        tracker: Runs what comes after a settlement; none before the first step.
        complete: Whether the last step succeeded.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.hooks = _hooks.HookTable()
        self.brokers: list[tuple[MountedBroker, ConnectedBroker]] = []
        self.subscriptions: list[tuple[MountedBroker, Subscription]] = []
        self.tracker: Tracker | None = None
        self.complete = False

    async def run(self, tasks: TaskGroup, stack: AsyncExitStack) -> None:
        """Go through the steps; a failure is reported to the service, naming step and culprit."""
        definition = self._service.definition
        step, culprit = "plugins", definition.title
        event = ServiceEvent(title=definition.title, version=definition.version)
        clock = LoopClock()
        try:
            self.tracker = tracker = Tracker(tasks, definition.max_tracked)
            self.hooks = _hooks.freeze(load_plugins(definition.plugins), definition.hook_functions)

            step = "state"
            state: Any = await open_state(definition.state, stack) if definition.has_state else MISSING

            step = "on_startup"
            for hook in self.hooks.on_startup:
                culprit = hook.name
                await call(hook, event)

            step = "connect"
            for mounted in definition.brokers:
                culprit = mounted.name
                self.brokers.append((mounted, await mounted.broker.connect(clock)))

            step = "subscribe"
            for mounted, broker in self.brokers:
                for registered in mounted.registered:
                    culprit = registered.name
                    subscription = await Subscription.open(
                        registered,
                        broker,
                        Surroundings(
                            handler=registered.signature.name,
                            source_parameters=registered.source.parameters,
                            has_state=definition.has_state,
                            state=state,
                            broker=broker,
                        ),
                        clock=clock,
                        tracker=tracker,
                        hooks=self.hooks.post_settle,
                        board=self._service.board,
                        fail=self._service.fail,
                        fatal_end=definition.on_subscription_end == "fail",
                    )
                    self.subscriptions.append((mounted, subscription))

            for _, subscription in self.subscriptions:
                tasks.start_soon(self._loop, subscription, name=f"pystream {subscription.name}")

            step = "after_startup"
            for hook in self.hooks.after_startup:
                culprit = hook.name
                await call(hook, event)

            self.complete = True
        except get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._service.fail(step, culprit, error)

    async def _loop(self, subscription: Subscription) -> None:
        try:
            await subscription.run()
        except get_cancelled_exc_class():
            raise
        except BaseException as error:  # also an exit: one loop must not take the process with it
            self._service.fail("loop", subscription.name, error)
