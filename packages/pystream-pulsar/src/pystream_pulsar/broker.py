"""`PulsarBroker`, the configuration, and `ConnectedPulsarBroker`, the connection."""

from __future__ import annotations

from typing import Any

from pystream.errors import BrokerClosed, ConfigurationError, NotConnected, PyStreamError
from pystream.protocols import Clock, Mounting

from pystream_pulsar._checks import is_name, is_seconds, is_whole
from pystream_pulsar._driver.driver import Driver, open_driver
from pystream_pulsar._home import Home
from pystream_pulsar._producers import Producers
from pystream_pulsar._url import service_url, uses_tls
from pystream_pulsar.auth import Token
from pystream_pulsar.publisher import PulsarPublisher, PulsarPublishPolicy
from pystream_pulsar.subscription import PulsarSubscription
from pystream_pulsar.tls import TLS
from pystream_pulsar.topic import PulsarTopic
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec, ServerInfo, Transport

__all__ = ["ConnectedPulsarBroker", "PulsarBroker", "broker_from_url"]

_DEFAULT_POLICY = PulsarPublishPolicy()
_LEAST_QUEUE = 100


class PulsarBroker:
    """An Apache Pulsar cluster; implements `pystream.protocols.Broker`. Construction does no I/O.

    Args:
        url: `pulsar://host:6650`, or `pulsar+ssl://host:6651` for TLS; several hosts stand between commas.
        auth: What the server knows us by, or none.
        tls: Whose certificates are trusted, with `pulsar+ssl://`; none for the system's authorities.
        default_subscription: The subscription that a bare topic name joins, of type SHARED; none
            makes a bare name an error.
        operation_timeout: Seconds for opening or closing one consumer or producer, 1 or more.
        connection_timeout: Seconds until `connect` gives up, 1 or more.
        io_threads: Network threads of the client, 1 or more.

    Raises:
        ConfigurationError: An argument cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: Token | None = None,
        tls: TLS | None = None,
        default_subscription: str | None = None,
        operation_timeout: float = 30.0,
        connection_timeout: float = 10.0,
        io_threads: int = 1,
    ) -> None:
        self._url = service_url(url)
        _check_security(self._url, auth, tls)
        _check_seconds("operation_timeout", operation_timeout)
        _check_seconds("connection_timeout", connection_timeout)
        if not is_whole(io_threads):
            raise ConfigurationError(f"PulsarBroker(io_threads={io_threads!r}): give a whole number of 1 or more")

        if default_subscription is not None and not is_name(default_subscription):
            raise ConfigurationError("PulsarBroker(default_subscription=...): the name is empty; leave it out for none")

        self._auth = auth
        self._tls = (tls or TLS()) if uses_tls(self._url) else None
        self._default_subscription = default_subscription
        self._operation_timeout = operation_timeout
        self._connection_timeout = connection_timeout
        self._io_threads = io_threads
        self._connection: ConnectedPulsarBroker | None = None
        self._waiting: list[PulsarPublisher] = []

    def __repr__(self) -> str:
        return f"PulsarBroker({self._url!r})"

    @property
    def source_types(self) -> tuple[type, ...]:
        """The classes of descriptors it takes: `PulsarSubscription`."""
        return (PulsarSubscription,)

    def describe(self) -> str:
        """The service URL, which holds no credentials."""
        return self._url

    def default_source(self, name: str) -> PulsarSubscription:
        """The subscription that a bare topic name stands for.

        Raises:
            ConfigurationError: The name is no topic, or the broker has no `default_subscription`.
        """
        topic = PulsarTopic(name)
        if self._default_subscription is None:
            raise ConfigurationError(
                f"the bare topic name {name!r} needs a subscription: write PulsarSubscription({name!r}, 'name'), or "
                "give PulsarBroker a default_subscription"
            )

        return PulsarSubscription(topic, self._default_subscription)

    def publisher(self, policy: PulsarPublishPolicy | None = None) -> PulsarPublisher:
        """A publisher that may be made before the broker is connected.

        Made while connected, it belongs to the latest connection, else to the next one: until
        then it raises `NotConnected`, after the end of a connection `BrokerClosed`.

        Raises:
            ConfigurationError: The policy is none of this broker's.
        """
        connection = self._connection
        if connection is not None and connection.closed is None:
            return connection.publisher(policy)

        publisher = PulsarPublisher(_checked(policy), self._missing)
        self._waiting.append(publisher)
        return publisher

    async def connect(self, clock: Clock) -> ConnectedPulsarBroker:
        """Connect, and return only after a server has answered.

        Raises:
            PulsarConnectError: With the address and the reason, within `connection_timeout`.
            ConfigurationError: The file of trusted certificates cannot be used; nothing was sent.

        Cancel safety: a cancelled connect leaves nothing open.
        """
        from pystream_pulsar._client.connection import ClientSettings, ClientTransport

        settings = ClientSettings(
            url=self._url,
            operation_timeout=self._operation_timeout,
            connection_timeout=self._connection_timeout,
            io_threads=self._io_threads,
            auth=self._auth,
            tls=self._tls,
        )
        transport = ClientTransport(settings)
        try:
            info = await transport.connect()
        except BaseException:
            await transport.close()
            raise

        connection = ConnectedPulsarBroker(transport, clock=clock, info=info, url=self._url)
        self.adopt(connection)
        return connection

    def adopt(self, connection: ConnectedPulsarBroker) -> None:
        """Have a connection be this broker's latest, to which its publishers belong.

        For what connects a broker otherwise than by `connect`, over a transport of its own.
        """
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for publisher in waiting:
            publisher.bind(connection.producers(publisher.policy))

    def _missing(self) -> PyStreamError:
        if self._connection is None:
            return NotConnected(f"the Pulsar broker {self._url} is not connected yet; start the app first")

        return BrokerClosed(f"the connection to {self._url} was closed")


class ConnectedPulsarBroker:
    """A connection to a cluster over any transport; implements `pystream.protocols.ConnectedBroker`.

    Belongs to the loop on which it is made.

    Args:
        transport: Connected already; closed with this object.
        clock: Keeps every time.
        info: What the server has said.
        url: What the cluster is called in messages.

    Attributes:
        info: What the server has said when it was asked.
        closed: What every use raises since it was closed, or none while it is open.
    """

    def __init__(
        self, transport: Transport, *, clock: Clock, info: ServerInfo | None = None, url: str = "pulsar"
    ) -> None:
        self.info: ServerInfo = info or ServerInfo()
        self._transport = transport
        self._clock = clock
        self._url = url
        self._home = Home()
        self._by_policy: dict[PulsarPublishPolicy, Producers] = {}
        self.closed: BrokerClosed | None = None

    def __repr__(self) -> str:
        return f"<ConnectedPulsarBroker {self._url}>"

    async def subscribe(self, source: PulsarSubscription, mounting: Mounting) -> Driver:
        """Open one consumer for one mounted handler.

        Raises:
            ConfigurationError: The source is no `PulsarSubscription`.
            PulsarSubscribeError: It was refused, naming the subscription and the reason.
            BrokerClosed: The connection was closed.

        Cancel safety: a consumer that opens later is closed.
        """
        if self.closed is not None:
            raise self.closed

        if not isinstance(source, PulsarSubscription):
            raise ConfigurationError(
                f"{self._url} takes a PulsarSubscription for {mounting.name!r}, not {type(source).__name__}"
            )

        return await open_driver(self._transport, source, _consumer_spec(source, mounting), self._clock)

    def publisher(self, policy: PulsarPublishPolicy | None = None) -> PulsarPublisher:
        """A publisher over this connection. No I/O.

        Raises:
            ConfigurationError: The policy is none of this broker's.
        """
        publisher = PulsarPublisher(_checked(policy))
        publisher.bind(self.producers(publisher.policy))
        return publisher

    def default_policy(self) -> PulsarPublishPolicy:
        """The policy of publishers for which the service states none."""
        return _DEFAULT_POLICY

    def producers(self, policy: PulsarPublishPolicy) -> Producers:
        """The producers of one policy; for `PulsarPublisher`. They refuse once the connection is closed."""
        producers = self._by_policy.get(policy)
        if producers is None:
            producers = Producers(self._transport, self._home, lambda topic: _producer_spec(topic, policy))
            producers = self._by_policy.setdefault(policy, producers)
            if self.closed is not None:
                producers.close(self.closed)

        return producers

    async def close(self) -> None:
        """Close consumers, producers and client, in this order. Idempotent.

        Cancel safety: the connection is closed for its users at once; the client's close is
        bounded by the transport.
        """
        first = self.closed is None
        self.closed = self.closed or BrokerClosed(f"the connection to {self._url} was closed")
        try:
            await self._transport.close()
        finally:
            if first:
                for producers in list(self._by_policy.values()):
                    producers.close(self.closed)


def broker_from_url(url: str) -> PulsarBroker:
    """The broker of a `pulsar://` or `pulsar+ssl://` URL; the entry point of the group `pystream.brokers`."""
    return PulsarBroker(url)


def _checked(policy: PulsarPublishPolicy | None) -> PulsarPublishPolicy:
    if policy is None:
        return _DEFAULT_POLICY

    if not isinstance(policy, PulsarPublishPolicy):
        raise ConfigurationError(f"a Pulsar publisher takes a PulsarPublishPolicy, not {type(policy).__name__}")

    return policy


def _check_security(url: str, auth: Any, tls: Any) -> None:
    if auth is not None and not isinstance(auth, Token):
        raise ConfigurationError(f"PulsarBroker(auth=...): give a Token, not {type(auth).__name__}")

    if tls is not None and not isinstance(tls, TLS):
        raise ConfigurationError(f"PulsarBroker(tls=...): give a TLS, not {type(tls).__name__}")

    if tls is not None and not uses_tls(url):
        raise ConfigurationError(
            f"PulsarBroker({url!r}, tls=...): the URL asks for a connection without TLS; begin it with pulsar+ssl://, "
            "or leave tls out"
        )


def _check_seconds(name: str, value: Any) -> None:
    if not is_seconds(value, least=1):
        raise ConfigurationError(f"PulsarBroker({name}={value!r}): give 1 second or more")


def _consumer_spec(source: PulsarSubscription, mounting: Mounting) -> ConsumerSpec:
    return ConsumerSpec(
        topic=source.topic.full_name,
        subscription=source.subscription_name,
        type=source.type.value,
        initial_position=source.initial_position.value,
        receiver_queue_size=source.receiver_queue_size or max(_LEAST_QUEUE, 4 * mounting.concurrency),
        ack_timeout=source.ack_timeout,
        consumer_name=source.consumer_name,
        properties=source.properties,
        read_compacted=source.read_compacted,
    )


def _producer_spec(topic: PulsarTopic, policy: PulsarPublishPolicy) -> ProducerSpec:
    return ProducerSpec(
        topic=topic.full_name,
        send_timeout=policy.send_timeout,
        max_pending=policy.max_pending,
        batching=policy.batching,
    )
