"""`MemoryPublisher` and its policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pystream.errors import BrokerClosed, ConfigurationError, NotConnected, PublishError
from pystream.memory._store import Message
from pystream.protocols import Outgoing

if TYPE_CHECKING:
    from pystream.memory.connection import ConnectedMemoryBroker

__all__ = ["MemoryPublishPolicy", "MemoryPublisher"]

_NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MemoryPublishPolicy:
    """The configuration of a memory publisher: there is nothing to configure."""

    @property
    def options(self) -> type | None:
        """None: a single publish takes no options."""
        return None


class MemoryPublisher:
    """Publishes to a memory broker; made by `MemoryBroker.publisher` or by its connection."""

    __slots__ = ("_address", "_connection")

    def __init__(self, address: str, connection: ConnectedMemoryBroker | None = None) -> None:
        self._address = address
        self._connection = connection

    def attach(self, connection: ConnectedMemoryBroker) -> None:
        """Publish over `connection` from now on: a handle made before the connect belongs to the first."""
        self._connection = connection

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        """Store a message for every subscription of its destination; with none, nothing is kept.

        From any loop or thread. Payload and key are kept as they are, the headers are copied.

        Args:
            outgoing: The message.
            options: None: this broker has no options.

        Raises:
            PublishError: The message cannot be stored, or options were given; nothing was stored.
            NotConnected: The broker is not connected yet.
            BrokerClosed: The connection was closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        connection = self._connection
        if connection is None:
            raise NotConnected(f"{self._address} is not connected yet; publish once the service has started")

        if options is not None:
            raise PublishError(
                f"{self._address} has no publish options, and {type(options).__name__} was given; leave it out"
            )

        connection.store(outgoing)


def stored_form(outgoing: Outgoing) -> Message:
    """The message as it is stored, apart from its destination checked.

    Raises:
        PublishError: The payload, the key or a header is not what it has to be.
    """
    payload, key = outgoing.payload, outgoing.key
    if not isinstance(payload, bytes):
        raise PublishError(f"{_to(outgoing)} has a payload of {type(payload).__name__}; encode it to bytes")

    if key is not None and not isinstance(key, (str, bytes)):
        raise PublishError(f"{_to(outgoing)} has a key of {type(key).__name__}; give str or bytes")

    headers = _copied(outgoing) if outgoing.headers else _NO_HEADERS
    return Message(outgoing.destination, payload, headers, key or None)


def _copied(outgoing: Outgoing) -> Mapping[str, bytes]:
    copied = dict(outgoing.headers)
    for name, value in copied.items():
        if not isinstance(name, str):
            raise PublishError(f"{_to(outgoing)} has a header name of {type(name).__name__}; names are str")

        if not isinstance(value, bytes):
            raise PublishError(f"{_to(outgoing)} has {type(value).__name__} in header {name!r}; encode it to bytes")

    return MappingProxyType(copied)


def _to(outgoing: Outgoing) -> str:
    return f"a message to {outgoing.destination!r}"


def closed(address: str) -> BrokerClosed:
    """The error of every handle of a closed connection."""
    return BrokerClosed(f"the connection to {address} was closed; start the service again to use it")


def check_policy(policy: object, address: str) -> None:
    """Refuse a publish policy that belongs to another broker.

    Raises:
        ConfigurationError: It is neither none nor a `MemoryPublishPolicy`.
    """
    if policy is not None and not isinstance(policy, MemoryPublishPolicy):
        raise ConfigurationError(
            f"{address} takes a MemoryPublishPolicy, and {type(policy).__name__} was given; leave it out"
        )
