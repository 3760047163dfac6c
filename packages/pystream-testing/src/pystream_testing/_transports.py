"""How a broker is connected in process: the entry-point group `pystream.testing_transports`.

An entry point is named after the broker's class, as `module:QualName` with the module it is
imported from or any package above it, or after the scheme of its address (`pulsar`). Its
value is a coroutine function

    async def connect(broker, clock) -> ConnectedBroker

which answers what `broker.connect(clock)` would answer, over a transport inside the process.
Every time it keeps goes by `clock`, which is virtual. `MemoryBroker` needs no entry: it is in
process as it is.

What `TestApp` expects of the connection, beyond `pystream.protocols.ConnectedBroker`:

- A publish, a settlement and a timer that fires take effect at once, or within a few turns of
  the loop (fewer than 20): no threads, no real sleeping.
- Publishers that the broker object has handed out before belong to this connection, as they
  would to a real one.
- It may have a method `owed() -> int`: how many deliveries the subscribers of this connection
  have not fetched yet and could fetch without any time passing. It rises within the publish,
  before that is confirmed, and within the requeue, before the delivery is let go; it falls
  when a subscriber gets the message (pulls it, where it pulls). A delivery that is held for a
  delay, or for which there is no permit, is not owed. With it, a reaction's end is known exactly
  and at once; without it, it is known after 20 quiet turns of the loop.

The coroutine function may carry two attributes, which serve live runs as well:

- `connect.resolve(destination: str) -> str`: the full name of a destination, as a source's
  `name` and a delivery's `destination` spell it. Without it names are compared as they are.
- `connect.group(source, mounting) -> Hashable`: subscriptions of one group share the messages
  of a destination, so that each message is owed to one of them. Without it every mounted
  handler gets every message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pystream.errors import ConfigurationError, PluginError
from pystream.memory import ConnectedMemoryBroker, MemoryBroker, MemorySubscriber
from pystream.protocols import Broker, Clock, ConnectedBroker, Mounting, Publisher, PublishPolicy

__all__ = ["GROUP", "Routing", "connect_in_process", "routing_of"]

GROUP = "pystream.testing_transports"
"""The entry-point group."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How a broker names destinations, and which subscriptions share their messages.

    Attributes:
        resolve: The full name of a destination.
        group: The same value for all subscriptions that share messages.
        known: Whether the broker's transport has said the former; if not, names are taken as they are.
    """

    resolve: Callable[[str], str]
    group: Callable[[Any, Mounting], Hashable]
    known: bool


async def connect_in_process(broker: Broker, clock: Clock) -> ConnectedBroker:
    """Connect a broker without a server.

    Raises:
        ConfigurationError: There is no in-process transport for it.
        PluginError: Its transport cannot be imported.
    """
    if isinstance(broker, MemoryBroker):
        return _Memory(await broker.connect(clock))

    connect = _loaded(broker)
    if connect is None:
        raise ConfigurationError(
            f"{broker.describe()}: no in-process transport is installed for {_class_name(broker)} (no entry point of "
            f"{GROUP} is named after it); install one, or run against a server with TestApp.start_live"
        )

    connected: ConnectedBroker = await connect(broker, clock)
    return connected


def routing_of(broker: Broker) -> Routing:
    """How this broker names and groups; by its transport if it says so."""
    if isinstance(broker, MemoryBroker):
        return Routing(str, _own_group, known=True)

    connect = _loaded(broker)
    resolve = getattr(connect, "resolve", None)
    return Routing(resolve or str, getattr(connect, "group", None) or _own_group, known=resolve is not None)


def _own_group(source: Any, mounting: Mounting) -> Hashable:
    return mounting.name


def _loaded(broker: Broker) -> Any:
    """What the entry point of this broker names, or none if there is no such entry point."""
    entry = _entry(broker)
    if entry is None:
        return None

    try:
        return entry.load()
    except Exception as error:
        raise PluginError(
            f"the in-process transport {entry.name} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _entry(broker: Broker) -> EntryPoint | None:
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    for kind in type(broker).__mro__:
        parts = kind.__module__.split(".")
        for length in range(len(parts), 0, -1):
            found = entries.get(f"{'.'.join(parts[:length])}:{kind.__qualname__}")
            if found is not None:
                return found

    return entries.get(broker.describe().partition("://")[0])


def _class_name(broker: Broker) -> str:
    return f"{type(broker).__module__}:{type(broker).__qualname__}"


class _Memory:
    """A memory broker's connection that says what it owes."""

    def __init__(self, connected: ConnectedMemoryBroker) -> None:
        self._connected = connected
        self._subscribers: list[MemorySubscriber] = []

    async def subscribe(self, source: Any, mounting: Mounting) -> MemorySubscriber:
        subscriber = await self._connected.subscribe(source, mounting)
        self._subscribers.append(subscriber)
        return subscriber

    def publisher(self, policy: Any = None) -> Publisher:
        return self._connected.publisher(policy)

    def default_policy(self) -> PublishPolicy:
        return self._connected.default_policy()

    async def close(self) -> None:
        await self._connected.close()

    def owed(self) -> int:
        return sum(subscriber.ready for subscriber in self._subscribers)
