"""The start of a service once its state is open: hooks, brokers, subscriptions, hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from anyio.abc import TaskGroup

from pystream import _hooks
from pystream._loops import in_cancelled_scope, is_cancellation
from pystream._runtime.definition import MountedBroker
from pystream._runtime.hooks import HookCalls
from pystream._runtime.live import LiveMount
from pystream._runtime.pipeline import compile_pipeline
from pystream._runtime.registration import Registered
from pystream._runtime.starter import Start
from pystream._runtime.subscription import Subscription
from pystream._runtime.tracker import Tracker
from pystream.clock import LoopClock
from pystream.hookspecs import ServiceEvent
from pystream.main_runtime import Adopt, MainRuntime
from pystream.parameters import Surroundings
from pystream.plugins import load_plugins
from pystream.protocols import Clock, ConnectedBroker, Delivery

if TYPE_CHECKING:
    from pystream._runtime.service import Service


class Startup:
    """Opens everything in order; remembers what is open, for the stop.

    Attributes:
        hooks: The frozen table; empty until `load`.
        brokers: The connected ones with their definitions, in order.
        subscriptions: The open ones with their brokers, in order.
        loops: The subscriptions whose loops were started.
        tracker: Runs what comes after a settlement; none before the first step.
        main: Runs what threads ask of the app's loop; none before the first step.
        calls: Calls the hooks; none before the first step.
        complete: Whether the last step succeeded.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.hooks: _hooks.HookTable = _hooks.HookTable()
        self.brokers: list[tuple[MountedBroker, ConnectedBroker]] = []
        self.subscriptions: list[tuple[MountedBroker, Subscription]] = []
        self.loops: list[Subscription] = []
        self.tracker: Tracker | None = None
        self.main: MainRuntime | None = None
        self.calls: HookCalls | None = None
        self.complete: bool = False

    def load(self) -> None:
        """Load the plugins and freeze the hook table.

        Raises:
            ConfigurationError: A plugin or a hook is none.
        """
        definition = self._service.definition
        self.hooks = _hooks.freeze(load_plugins(definition.plugins), definition.hook_functions)

    async def run(self, tasks: TaskGroup, state: Any) -> None:
        """Go through the steps; a failure is reported to the service, naming step and culprit."""
        definition = self._service.definition
        step, culprit = "on_startup", definition.title
        event = ServiceEvent(title=definition.title, version=definition.version)
        clock = self._clock()
        try:
            self.tracker = tracker = self._tracker(tasks)
            self.main = MainRuntime(_adopted_by(tracker))
            self.calls = calls = HookCalls(definition, state, self.brokers)
            calls.check(self.hooks)
            for hook in self.hooks.on_startup:
                culprit = hook.name
                await calls.call(hook, event)

            step = "connect"
            for mounted in definition.brokers:
                culprit = mounted.name
                self.brokers.append((mounted, await self._connect(mounted, clock)))

            step = "subscribe"
            for mounted, broker in self.brokers:
                for registered in mounted.registered:
                    culprit = registered.name
                    subscription = await Subscription.open(
                        self._adapted(registered),
                        broker,
                        Surroundings(
                            handler=registered.signature.name,
                            source_parameters=registered.source.parameters,
                            has_state=definition.has_state,
                            state=state,
                            broker=broker,
                            main=self.main,
                        ),
                        clock=clock,
                        tracker=tracker,
                        hooks=self.hooks.post_settle,
                        board=self._service.board,
                        fail=self._service.fail,
                        fatal_end=definition.on_subscription_end == "fail",
                        compiled=self._compiled,
                    )
                    self.subscriptions.append((mounted, subscription))

            for _, subscription in self.subscriptions:
                self.loops.append(subscription)
                tasks.start_soon(self._loop, subscription, name=f"pystream {subscription.name}")

            step = "after_startup"
            for hook in self.hooks.after_startup:
                culprit = hook.name
                await calls.call(hook, event)

            self.complete = True
        except BaseException as error:
            if is_cancellation(error):
                raise

            self._service.fail(step, culprit, error)

    # What a harness replaces; a production start runs these.

    def _clock(self) -> Clock:
        return LoopClock()

    def _tracker(self, tasks: TaskGroup) -> Tracker:
        return Tracker(tasks, self._service.definition.max_tracked)

    async def _connect(self, mounted: MountedBroker, clock: Clock) -> ConnectedBroker:
        return await mounted.broker.connect(clock)

    def _adapted(self, registered: Registered) -> Registered:
        return registered

    def _compiled(self, live: LiveMount) -> Start[Delivery]:
        return compile_pipeline(live)

    async def _loop(self, subscription: Subscription) -> None:
        try:
            await subscription.run()
        except BaseException as error:  # also an exit: one loop must not take the process with it
            if is_cancellation(error) and in_cancelled_scope():
                raise

            self._service.fail("loop", subscription.name, error)


def _adopted_by(tracker: Tracker) -> Adopt:
    def adopt(name: str, run: Callable[[], Awaitable[None]]) -> None:
        tracker.adopt((name, run, ()), _never)

    return adopt


def _never(name: str, error: BaseException) -> None:
    """Of what was adopted nothing is raised: its errors belong to whoever has asked for it."""
