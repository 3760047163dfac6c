"""What the tests of a service's life share: a journal, a broker that tells its steps, bounded waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from pystream import Health, PyStream, RunningApp, ServiceFailed, subscriber
from pystream.errors import PyStreamError
from pystream.memory import ConnectedMemoryBroker, MemoryBroker, MemoryPublishPolicy, MemorySubscriber
from pystream.protocols import Clock, Delivery, Gap, Mounting, Outgoing, Publisher, SubscriptionSource

SECONDS = 5.0
"""How long any wait of a test may take before the test fails."""

ASYNCIO_ONLY = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"]
)
"""For what trio cannot do: a cancellation without a cancelled scope."""

Step = Callable[[str], Awaitable[None]]
"""Called with a step of a broker before the broker does it; may raise, or hang."""


class Journal:
    """What happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)

    def noting(self, line: str) -> Callable[[], None]:
        """A hook that writes one line."""

        def note() -> None:
            self.lines.append(line)

        return note


class TellingBroker:
    """A memory broker that writes its steps into a journal, and may fail at one.

    Args:
        journal: Where the steps are written.
        name: The memory broker's; in front of each step.
        step: Called before each step with its name: `connect`, `subscribe orders`,
            `close orders`, `close`.
    """

    def __init__(self, journal: Journal, name: str, step: Step | None = None) -> None:
        self.memory = MemoryBroker(name)
        self._journal = journal
        self._name = name
        self._step = step
        self.connections: list[ConnectedMemoryBroker] = []
        self.subscribers: dict[str, TellingSubscriber] = {}

    def break_stream(self, name: str, *errors: BaseException) -> None:
        """Have the next waits of a subscription raise, one error each."""
        self.subscribers[name].errors.extend(errors)
        self.subscribers[name].interrupt()

    async def tell(self, step: str) -> None:
        self._journal(f"{self._name}: {step}")
        if self._step is not None:
            await self._step(step)

    def default_source(self, name: str) -> SubscriptionSource:
        return self.memory.default_source(name)

    @property
    def source_types(self) -> tuple[type, ...]:
        return self.memory.source_types

    def describe(self) -> str:
        return self.memory.describe()

    async def connect(self, clock: Clock) -> TellingConnection:
        await self.tell("connect")
        connection = await self.memory.connect(clock)
        self.connections.append(connection)
        return TellingConnection(self, connection)


class TellingConnection:
    def __init__(self, broker: TellingBroker, connection: ConnectedMemoryBroker) -> None:
        self._broker = broker
        self._connection = connection

    async def subscribe(self, source: Any, mounting: Mounting) -> TellingSubscriber:
        await self._broker.tell(f"subscribe {mounting.name}")
        opened = await self._connection.subscribe(source, mounting)
        subscriber = self._broker.subscribers[mounting.name] = TellingSubscriber(self._broker, mounting.name, opened)
        return subscriber

    def publisher(self, policy: Any = None) -> Publisher:
        return self._connection.publisher(policy)

    def default_policy(self) -> MemoryPublishPolicy:
        return self._connection.default_policy()

    async def close(self) -> None:
        await self._broker.tell("close")
        await self._connection.close()


class TellingSubscriber:
    def __init__(self, broker: TellingBroker, name: str, subscriber: MemorySubscriber) -> None:
        self._broker = broker
        self._name = name
        self._subscriber = subscriber
        self.errors: deque[BaseException] = deque()
        self.take_error: Exception | None = None
        self.taken = 0
        self.interrupt = subscriber.interrupt

    def take(self) -> Delivery | Gap | None:
        if self.take_error is not None:
            raise self.take_error

        delivery = self._subscriber.take()
        if delivery is not None:
            self.taken += 1

        return delivery

    async def wait(self) -> None:
        if not self.errors:
            await self._subscriber.wait()

        if self.errors:
            raise self.errors.popleft()

    @property
    def delayed(self) -> int:
        return self._subscriber.delayed

    async def close(self) -> None:
        await self._broker.tell(f"close {self._name}")
        await self._subscriber.close()


async def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds; fails after `SECONDS`."""
    with anyio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110  # anything may be the condition, not only what sets an event
            await anyio.sleep(0.001)


async def soon(event: anyio.Event) -> None:
    """Wait for an event; fails after `SECONDS`."""
    with anyio.fail_after(SECONDS):
        await event.wait()


async def publish(running: RunningApp, *payloads: bytes, to: str = "orders", key: str | None = None) -> None:
    """Publish through the one broker of the app."""
    publisher = running.publisher()
    for payload in payloads:
        await publisher.publish(payload, to, key=key)


def outgoing(payload: bytes, to: str = "orders") -> Outgoing:
    return Outgoing(to, payload, {})


async def failed_start(start: AbstractAsyncContextManager[RunningApp]) -> ServiceFailed:
    """Start a service that must fail to; answers the failure."""
    try:
        with anyio.fail_after(SECONDS):
            async with start:
                raise AssertionError("the service started")
    except ServiceFailed as failure:
        return failure

    raise AssertionError("nothing was raised")


async def failed_run(
    start: AbstractAsyncContextManager[RunningApp], body: Callable[[RunningApp], Awaitable[object]]
) -> tuple[ServiceFailed, Health]:
    """Run the body, wait until the service stops by itself, leave; what leaving raises, and the health."""
    with anyio.fail_after(SECONDS):
        try:
            async with start as running:
                await body(running)
                await running.stopping()
        except ServiceFailed as failure:
            return failure, running.health

    raise AssertionError("nothing was raised")


def publishing(*payloads: bytes, to: str = "orders") -> Callable[[RunningApp], Awaitable[object]]:
    """A body that publishes."""

    async def body(running: RunningApp) -> None:
        await publish(running, *payloads, to=to)

    return body


def raising_at(step: str, error: BaseException) -> Step:
    """A broker's step that raises."""

    async def check(reached: str) -> None:
        if reached == step:
            raise error

    return check


def hanging_at(step: str, reached: anyio.Event | None = None) -> Step:
    """A broker's step that never returns."""

    async def check(now: str) -> None:
        if now == step:
            if reached is not None:
                reached.set()

            await anyio.sleep_forever()

    return check


class Gate:
    """A handler that says when it has begun and ends when it is let go."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.begun = anyio.Event()
        self.go_on = anyio.Event()
        self.seen: list[bytes] = []
        self._journal = journal or Journal()

    def handler(self, source: str = "orders") -> Callable[[bytes], Awaitable[None]]:
        @subscriber(source)
        async def handle(payload: bytes) -> None:
            self.begun.set()
            await self.go_on.wait()
            self.seen.append(payload)
            self._journal(f"handled {payload.decode()}")

        return handle


async def leftover(broker: MemoryBroker, *handlers: Any, name: str = "orders") -> list[bytes]:
    """What the subscriptions of `name` still hand out when the broker is started again."""
    seen: list[bytes] = []

    @subscriber(name)
    async def handle(payload: bytes) -> None:
        seen.append(payload)

    async with PyStream("again").with_broker(broker, handle).start():
        await until(lambda: broker.stored(name) == 0)

    return seen


class Broken(PyStreamError):
    """A stream that is broken for now."""
