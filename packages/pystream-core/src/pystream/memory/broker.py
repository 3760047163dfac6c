"""`MemoryBroker`: a broker that lives in the process."""

from __future__ import annotations

import re
import threading
from typing import Any

from anyio.lowlevel import current_token

from pystream.errors import ConfigurationError, ConnectError
from pystream.memory._store import Store
from pystream.memory.connection import ConnectedMemoryBroker
from pystream.memory.publisher import MemoryPublisher, check_policy
from pystream.memory.subscription import MemorySubscription
from pystream.protocols import Clock

__all__ = ["MemoryBroker", "broker_from_url"]

_NAME = re.compile(r"[A-Za-z0-9._-]*")
_SCHEME = "memory://"


class MemoryBroker:
    """A broker inside the process, for services without a server and for trying things out.

    Every subscription of a name gets every message published to it while the subscription
    exists, which is from the first time it is opened until this object is gone: messages
    published, and deliveries left unsettled, while no service runs are there when the same
    object is connected again. A name without a subscription keeps nothing, and neither does
    the process's end. Subscriptions are told apart by the name of the destination and the
    name of the mounted handler: a handler under a new name has a new subscription, and the
    one of the old name goes on collecting.

    A retry comes back behind the next message not handed out yet, if there is one: the two
    take turns. Delays are kept by the clock of the connection. Implements
    `pystream.protocols.Broker`.

    Args:
        name: What logs and errors call it, behind `memory://`: letters, digits, `.`, `_`
            and `-`, or nothing. Two brokers of one name have nothing in common.

    Raises:
        ConfigurationError: The name is none.
    """

    def __init__(self, name: str = "") -> None:
        if not _is_name(name):
            raise ConfigurationError(
                f"MemoryBroker: {name!r} cannot be its name; use letters, digits, '.', '_' and '-', or leave it out"
            )

        self._address = _SCHEME + name
        self._store = Store()
        self._connecting = threading.Lock()
        self._connections: list[ConnectedMemoryBroker] = []
        self._waiting: list[MemoryPublisher] = []
        self._loop: object = None
        self._owner = threading.current_thread()

    def __repr__(self) -> str:
        return f"MemoryBroker({self._address.removeprefix(_SCHEME)!r})"

    def default_source(self, name: str) -> MemorySubscription:
        """The source a bare name stands for.

        Raises:
            ConfigurationError: The name is none.
        """
        return MemorySubscription(name)

    @property
    def source_types(self) -> tuple[type, ...]:
        """The classes of descriptors it takes."""
        return (MemorySubscription,)

    def describe(self) -> str:
        """The address, as `memory://name`."""
        return self._address

    def publisher(self, policy: Any = None) -> MemoryPublisher:
        """A publisher that may be made before the broker is connected.

        Made while connected, it belongs to the latest connection, else to the next one:
        until then it raises `NotConnected`, after that connection's end `BrokerClosed`.

        Raises:
            ConfigurationError: The policy is none of this broker's.
        """
        check_policy(policy, self._address)
        with self._connecting:
            for latest in reversed(self._connections):
                return MemoryPublisher(self._address, latest)

            publisher = MemoryPublisher(self._address)
            self._waiting.append(publisher)
            return publisher

    def stored(self, name: str) -> int:
        """How many messages the broker keeps for `name`: all from the oldest that a subscription still needs.

        On the owner's loop, or while the broker is not connected.
        """
        self._store.read_mail()
        topic = self._store.topics.get(name)
        if topic is None:
            return 0

        topic.trim()
        return len(topic.log)

    async def connect(self, clock: Clock) -> ConnectedMemoryBroker:
        """Connect; nothing is waited for.

        Several connections of one loop share what the broker keeps. One that was left open
        by a loop which ended is closed by the next connect in the same thread, or in any
        if its thread ended too; what it held comes back.

        Raises:
            ConnectError: The broker is connected in another thread.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        with self._connecting:
            self._take_over(current_token())
            connection = ConnectedMemoryBroker(self._address, self._store, clock, self._forget)
            self._connections.append(connection)
            for publisher in self._waiting:
                publisher.attach(connection)

            self._waiting.clear()
            return connection

    def _forget(self, connection: ConnectedMemoryBroker) -> None:
        if connection in self._connections:
            self._connections.remove(connection)

    def _take_over(self, loop: object) -> None:
        if self._connections and loop != self._loop:
            if self._owner is not threading.current_thread() and self._owner.is_alive():
                raise ConnectError(
                    f"{self._address} is connected in thread {self._owner.name!r}, and one broker object serves one"
                    " event loop; close that connection first, or make a MemoryBroker of its own"
                )

            for left_open in tuple(self._connections):
                left_open.abandon()

        self._loop = loop
        self._owner = threading.current_thread()
        self._store.thread = threading.get_ident()


def broker_from_url(url: str) -> MemoryBroker:
    """The broker of a URL, `memory://` or `memory://name`; each call makes one of its own.

    Raises:
        ConfigurationError: The URL is none of these.
    """
    name = url.removeprefix(_SCHEME)
    if name == url or not _is_name(name):
        # Without the URL: what was put there may be a secret.
        raise ConfigurationError(
            "not a URL of the memory broker: give memory:// or memory://NAME, where NAME has letters,"
            " digits, '.', '_' and '-' only"
        )

    return MemoryBroker(name)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
