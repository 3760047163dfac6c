"""The seam for test harnesses. Unstable: it may change in any version.

`start` runs an app as `PyStream.start` does, with another clock, brokers connected another
way, another state, or an instrument that is told of every step. The instrument is chosen when
the handlers are compiled: a start that is not made here has nothing of it, and does not
import this module.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pystream._runtime.harnessed import HarnessedService
from pystream._runtime.observed import Instrument, Probe
from pystream.app import PyStream, RunningApp
from pystream.errors import NotConnected, ServiceFailed
from pystream.parameters import MISSING
from pystream.protocols import Broker, Clock, ConnectedBroker, Mounting

__all__ = ["Brokers", "Connect", "Harnessed", "Instrument", "MountedHandler", "OpenBroker", "Probe", "brokers", "start"]

Connect = Callable[[Broker, Clock], Awaitable[ConnectedBroker]]
"""What connects a broker in place of its own `connect`."""

for _public in (Instrument, Probe):
    _public.__module__ = __name__


@dataclass(frozen=True, slots=True)
class MountedHandler:
    """One mounted handler of an app.

    Attributes:
        name: The subscription's name, its broker's label in front if there is one.
        handler: The function, method, partial or callable object.
        source: Where its deliveries come from.
        mounting: What the broker is told.
        reply_to: Where replies are published, or none.
        broker: The place of its broker among the app's, from 0.
    """

    name: str
    handler: Callable[..., Any]
    source: Any
    mounting: Mounting
    reply_to: str | None
    broker: int


@dataclass(frozen=True, slots=True)
class OpenBroker:
    """One broker of an app.

    Attributes:
        broker: Its configuration.
        label: What tells it from others of its type, or none.
        name: How it is called in errors.
        handlers: Those mounted on it, in order.
        connected: The connection; none before it is made.
    """

    broker: Broker
    label: str | None
    name: str
    handlers: Sequence[MountedHandler]
    connected: ConnectedBroker | None = None

    @property
    def connection(self) -> ConnectedBroker:
        """The connection.

        Raises:
            NotConnected: There is none yet.
        """
        if self.connected is None:
            raise NotConnected(f"{self.name} is not connected yet")

        return self.connected


Brokers = Sequence[OpenBroker]
"""The brokers of an app, in the order of their registration."""


class Harnessed:
    """An app that runs in a harness.

    Attributes:
        running: What `PyStream.start` would give.
    """

    def __init__(self, service: HarnessedService, running: RunningApp) -> None:
        self._service = service
        self._batching = [item for _, item in service.startup.subscriptions if item.has_batches]
        self.running: RunningApp = running

    @property
    def brokers(self) -> Brokers:
        """The app's brokers with their connections."""
        return _brokers(self._service)

    @property
    def failure(self) -> ServiceFailed | None:
        """Why the service failed, or none."""
        return self._service.failure

    @property
    def tracked(self) -> Sequence[str]:
        """The names of the continuations and hooks that run as tasks now."""
        tracker = self._service.startup.tracker
        return [] if tracker is None else tracker.running

    @property
    def filling(self) -> int:
        """How many deliveries were taken and wait for their batch to be closed."""
        return sum(subscription.filling for subscription in self._batching) if self._batching else 0

    def close_batches(self) -> None:
        """Have every batch that is being filled handled as it is. Synchronous."""
        for subscription in self._batching:
            subscription.close_batch()

    async def ended(self) -> None:
        """Return when the last step of the stop is over. Cancel safety: cancelling it changes nothing."""
        await self._service.ended()


def brokers(app: PyStream) -> Brokers:
    """The brokers of an app that does not run, and the handlers on them."""
    return _brokers(HarnessedService(app._definition(None)))


def start(
    app: PyStream,
    *,
    clock: Callable[[], Clock] | None = None,
    connect: Connect | None = None,
    state: Any = MISSING,
    build_state: Callable[[Brokers], Any] | None = None,
    instrument: Instrument | None = None,
    shutdown_timeout: float | None = None,
) -> AbstractAsyncContextManager[Harnessed]:
    """Run an app beside the body of an `async with`, in the order of a production start.

    Args:
        app: It is not changed, and may be started again.
        clock: Makes the clock of brokers and runtime, on the loop; by default the loop's own.
        connect: Connects each broker; by default its own `connect`.
        state: In place of the app's own, in any of the forms that the app takes.
        build_state: Makes the state in place of the app's own, given the brokers, which are
            connected for it; what it returns may have any of these forms.
        instrument: Is told of every step.
        shutdown_timeout: In place of the app's own, if given.

    Raises:
        ServiceFailed: On entry, the start failed. On exit nothing of ours is raised:
            `Harnessed.failure` says it. What the body raises comes out as it is.

    Cancel safety: a cancellation of the body aborts the service.
    """
    service = HarnessedService(app._definition(shutdown_timeout), clock=clock, connect=connect, instrument=instrument)
    if build_state is not None:
        service.build_state(lambda: build_state(_brokers(service)))
    elif state is not MISSING:
        service.replace_state(state)

    return _start(service)


@asynccontextmanager
async def _start(service: HarnessedService) -> AsyncIterator[Harnessed]:
    running = RunningApp(service)
    async with service.running():
        yield Harnessed(service, running)


def _brokers(service: HarnessedService) -> Brokers:
    return [
        OpenBroker(
            mounted.broker,
            mounted.label,
            mounted.name,
            [
                MountedHandler(item.name, item.handler, item.source, item.mounting, item.reply_to, place)
                for item in mounted.registered
            ],
            service.startup.connections.get(place),
        )
        for place, mounted in enumerate(service.definition.brokers)
    ]
