"""A service whose clock, connections, state and pipeline are a harness's; only `pystream.harness` imports it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from pystream._runtime.definition import Definition, MountedBroker
from pystream._runtime.live import LiveMount
from pystream._runtime.observed import Instrument, ObservedBroker, ObservedTracker, Probe, compile_observed
from pystream._runtime.observed_batches import compile_observed_batches
from pystream._runtime.pipeline import compile_pipeline
from pystream._runtime.registration import Registered
from pystream._runtime.service import Service
from pystream._runtime.starter import Start
from pystream._runtime.startup import Startup
from pystream._runtime.state import open_state
from pystream._runtime.tracker import Tracker
from pystream.clock import LoopClock
from pystream.protocols import Broker, Clock, ConnectedBroker


class HarnessedService(Service):
    """A run of the defined service in a harness; see `pystream.harness.start` for the arguments."""

    startup: HarnessedStartup

    def __init__(
        self,
        definition: Definition,
        *,
        clock: Callable[[], Clock] | None = None,
        connect: Callable[[Broker, Clock], Awaitable[ConnectedBroker]] | None = None,
        instrument: Instrument | None = None,
    ) -> None:
        super().__init__(definition)
        self._instrument = instrument
        self.startup: Startup = HarnessedStartup(self, clock or LoopClock, connect, instrument)

    def replace_state(self, state: Any) -> None:
        """Open `state` in place of the service's own."""
        self.definition: Definition = replace(self.definition, state=state, has_state=True)

    def build_state(self, build: Callable[[], Any]) -> None:
        """Open what `build` returns in place of the service's own state; the brokers are connected before it."""

        @asynccontextmanager
        async def built() -> AsyncIterator[Any]:
            try:
                await self.startup.connect_early()
                async with AsyncExitStack() as stack:
                    yield await open_state(build(), stack)
            finally:
                await self.startup.close_unused()

        self.replace_state(built)

    def request_stop(self) -> None:
        """See `Service.request_stop`."""
        first = not self._stop_requested.is_set()
        super().request_stop()
        if first and self._instrument is not None:
            self._instrument.stopping()


class HarnessedStartup(Startup):
    """The start of such a service.

    Attributes:
        connections: The connected brokers by their place among the service's.
    """

    def __init__(
        self,
        service: Service,
        clock: Callable[[], Clock],
        connect: Callable[[Broker, Clock], Awaitable[ConnectedBroker]] | None,
        instrument: Instrument | None,
    ) -> None:
        super().__init__(service)
        self.connections: dict[int, ConnectedBroker] = {}
        self._definition = service.definition
        self._make_clock = clock
        self._made: Clock | None = None
        self._connect_one = connect
        self._instrument = instrument
        self._probes: dict[str, Probe] = {}

    async def connect_early(self) -> None:
        """Connect every broker before its step, which then finds it connected."""
        clock = self._clock()
        for mounted in self._definition.brokers:
            await self._connect(mounted, clock)

    async def close_unused(self) -> None:
        """Close what was connected early and did not come to its step."""
        used = {id(connected) for _, connected in self.brokers}
        for connected in self.connections.values():
            if id(connected) not in used:
                await connected.close()

    def _clock(self) -> Clock:
        if self._made is None:
            self._made = self._make_clock()

        return self._made

    async def _connect(self, mounted: MountedBroker, clock: Clock) -> ConnectedBroker:
        place = next(index for index, item in enumerate(self._definition.brokers) if item is mounted)
        if place in self.connections:
            return self.connections[place]

        connected = await (
            mounted.broker.connect(clock) if self._connect_one is None else self._connect_one(mounted.broker, clock)
        )
        if self._instrument is not None:
            probe = partial(self._probe, self._instrument)
            connected = ObservedBroker(connected, place, self._instrument, probe)

        self.connections[place] = connected
        return connected

    def _tracker(self, tasks: TaskGroup) -> Tracker:
        limit = self._definition.max_tracked
        return Tracker(tasks, limit) if self._instrument is None else ObservedTracker(tasks, limit, self._instrument)

    def _adapted(self, registered: Registered) -> Registered:
        """Threads become workers on the test's loop, where everything can be watched; the order per key is kept."""
        threads = registered.threads
        return registered if threads is None else replace(registered, workers=threads, threads=None)

    def _compiled(self, live: LiveMount) -> Start[Any]:
        if self._instrument is None:
            return compile_pipeline(live)

        probe = self._probe(self._instrument, live.registered.name)
        return compile_observed(live, probe) if live.registered.batch is None else compile_observed_batches(live, probe)

    def _probe(self, instrument: Instrument, name: str) -> Probe:
        probe = self._probes.get(name)
        if probe is None:
            probe = self._probes[name] = instrument.subscription(name)

        return probe
