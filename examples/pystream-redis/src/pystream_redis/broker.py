"""`RedisBroker`, the configuration, and `ConnectedRedisBroker`, the connection."""

from __future__ import annotations

import os
import socket
import uuid
from typing import Any

import anyio
from pystream.background import running_library
from pystream.errors import BrokerClosed, ConfigurationError, ConnectError, SubscribeError
from pystream.protocols import Clock, Mounting

from pystream_redis._link import BrokenLink, Link, Refusal
from pystream_redis._pipe import Pipe
from pystream_redis._reader import BLOCK
from pystream_redis._url import Address, parse_url
from pystream_redis.publisher import RedisPublisher, RedisPublishPolicy
from pystream_redis.stream import RedisStream
from pystream_redis.subscriber import RedisSubscriber

__all__ = ["ConnectedRedisBroker", "RedisBroker", "broker_from_url"]

_DEFAULT_POLICY = RedisPublishPolicy()


class RedisBroker:
    """A Redis server of version 6.2 or later; implements `pystream.protocols.Broker`.

    Construction does no I/O. Works on asyncio and uvloop, as redis-py does, not on trio.

    Args:
        url: `redis://host:6379/0`; user and password may stand before the host, encoded as in
            every URL. They are shown nowhere.
        default_group: The consumer group that a bare stream name joins; none makes a bare
            name an error.

    Raises:
        ConfigurationError: An argument cannot work.
    """

    def __init__(self, url: str, *, default_group: str | None = None) -> None:
        self._address = parse_url(url)
        if default_group is not None and not (isinstance(default_group, str) and default_group):
            raise ConfigurationError("RedisBroker(default_group=...): give a name, or leave it out")

        self._default_group = default_group

    def __repr__(self) -> str:
        return f"RedisBroker({str(self._address)!r})"

    @property
    def source_types(self) -> tuple[type, ...]:
        """The classes of descriptors it takes: `RedisStream`."""
        return (RedisStream,)

    def default_source(self, name: str) -> RedisStream:
        """The source that a bare stream name stands for.

        Raises:
            ConfigurationError: The name is none, or the broker has no `default_group`.
        """
        if self._default_group is None:
            raise ConfigurationError(
                f"the bare stream name {name!r} needs a consumer group: write RedisStream({name!r}, 'group'), or give "
                "RedisBroker a default_group"
            )

        return RedisStream(name, self._default_group)

    def describe(self) -> str:
        """The address, without credentials."""
        return str(self._address)

    async def connect(self, clock: Clock) -> ConnectedRedisBroker:
        """Connect, and return only after the server has answered.

        Raises:
            ConnectError: The loop is trio's, or the server cannot be reached within 5 seconds
                or refuses the connection.

        Cancel safety: a cancelled connect leaves nothing open.
        """
        if running_library() != "asyncio":
            raise ConnectError(
                f"{self._address} needs asyncio or uvloop, since its client redis-py knows no other loop, and trio "
                "runs here; run the service with --backend asyncio"
            )

        link = Link(self._address)
        try:
            [answer] = await link.run([("PING",)])
        except BrokenLink as error:
            raise ConnectError(f"{self._address} cannot be reached: {error}") from error

        if isinstance(answer, Refusal):
            await link.close()
            raise ConnectError(f"{self._address} refused the connection: {answer}") from answer

        return ConnectedRedisBroker(self._address, link, clock)


class ConnectedRedisBroker:
    """A live connection; made by `RedisBroker.connect`. Belongs to the loop it was made on.

    One connection to the server carries publishes, settlements and claims, each subscriber
    has one more to read.
    """

    def __init__(self, address: Address, link: Link, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._pipe = Pipe(link, self._closed_error)
        self._subscribers: list[RedisSubscriber] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<ConnectedRedisBroker {self._address}>"

    async def subscribe(self, source: Any, mounting: Mounting) -> RedisSubscriber:
        """Open a consumer of the source's group for one mounted handler.

        Raises:
            SubscribeError: The source is none of this broker's, or the server refused.
            BrokerClosed: The connection was closed.

        Cancel safety: a cancelled subscribe leaves no consumer running.
        """
        if self._closed:
            raise self._closed_error()

        if not isinstance(source, RedisStream):
            raise SubscribeError(
                f"subscription {mounting.name!r}: {self._address} takes a RedisStream, and its source is a "
                f"{type(source).__name__}"
            )

        subscriber = RedisSubscriber(
            source,
            mounting,
            pipe=self._pipe,
            link=Link(self._address, patience=BLOCK),
            consumer=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            clock=self._clock,
        )
        try:
            await subscriber.open()
        except (BrokenLink, Refusal) as error:
            raise SubscribeError(
                f"subscription {mounting.name!r} to {source.stream!r} on {self._address} was not opened: {error}"
            ) from error

        self._subscribers.append(subscriber)
        return subscriber

    def publisher(self, policy: Any = None) -> RedisPublisher:
        """A publisher over this connection. No I/O.

        Raises:
            ConfigurationError: The policy is none of this broker's.
        """
        if policy is not None and not isinstance(policy, RedisPublishPolicy):
            raise ConfigurationError(
                f"{self._address} takes a RedisPublishPolicy, and {type(policy).__name__} was given"
            )

        return RedisPublisher(self._pipe, policy or _DEFAULT_POLICY)

    def default_policy(self) -> RedisPublishPolicy:
        """The policy of publishers for which the service states none: nothing is trimmed."""
        return _DEFAULT_POLICY

    async def close(self) -> None:
        """End every handle of this connection; they raise `BrokerClosed` afterwards. Idempotent.

        Cancel safety: a cancelled close leaves the connection closed.
        """
        self._closed = True
        try:
            async with anyio.create_task_group() as closing:
                for subscriber in self._subscribers:
                    closing.start_soon(subscriber.close)
        finally:
            self._subscribers.clear()
            await self._pipe.close()

    def _closed_error(self) -> BrokerClosed:
        return BrokerClosed(f"the connection to {self._address} was closed; start the service again to use it")


def broker_from_url(url: str) -> RedisBroker:
    """The broker of a `redis://` URL; the entry point of the group `pystream.brokers`."""
    return RedisBroker(url)
