"""`ClientTransport`: one client of `pulsar-client` behind the plugin's transport protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import anyio
from pystream.errors import BrokerClosed, NotConnected

from pystream_pulsar._client import binding
from pystream_pulsar._client.at_exit import GuardedClient
from pystream_pulsar._client.callbacks import Answer, guarded
from pystream_pulsar._client.closing import Call, call_all
from pystream_pulsar._client.consumers import ClientConsumer
from pystream_pulsar._client.logs import log_file
from pystream_pulsar._client.probe import addresses, probe
from pystream_pulsar._client.producers import ClientProducer
from pystream_pulsar._client.results import open_producer_error, subscribe_error
from pystream_pulsar._client.tls import ssl_context, trust_file
from pystream_pulsar._client.tokens import TokenSupplier, read_token
from pystream_pulsar.auth import Token
from pystream_pulsar.errors import PulsarConnectError
from pystream_pulsar.tls import TLS
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec, ServerInfo

__all__ = ["ClientSettings", "ClientTransport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach a cluster.

    Attributes:
        url: The service URL: `pulsar://` or `pulsar+ssl://`, one or more hosts.
        operation_timeout: Seconds for opening or closing one consumer or producer, 1 or more.
        connection_timeout: Seconds until `connect` gives up, and for each connection later.
        io_threads: Network threads of the client, 1 or more.
        close_timeout: Seconds that a close may take in all, more than 0.
        auth: Who we are, or none.
        tls: How the server is known; there with `pulsar+ssl://`, and only with it.
    """

    url: str
    operation_timeout: float = 30.0
    connection_timeout: float = 10.0
    io_threads: int = 1
    close_timeout: float = 8.0
    auth: Token | None = None
    tls: TLS | None = None


class ClientTransport:
    """Implements `pystream_pulsar.transport.Transport`. Construction does no I/O.

    Args:
        settings: How to reach the cluster.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._client: GuardedClient | None = None
        self._closed = False
        self._consumers: set[ClientConsumer] = set()
        self._producers: set[ClientProducer] = set()

    async def connect(self) -> ServerInfo:
        """Ask the server who it is, then make the client.

        Raises:
            PulsarConnectError: Nobody answers as a Pulsar server, or it refuses; with address and reason.
            ConfigurationError: The file of trusted certificates cannot be used; before anything is sent.
            BrokerClosed: The transport was closed.

        Cancel safety: nothing stays open.
        """
        settings = self._settings
        tls = settings.tls
        context = None if tls is None else ssl_context(tls)
        deadline = anyio.current_time() + settings.connection_timeout
        token = None if settings.auth is None else await self._read_token(settings.auth)
        remaining = deadline - anyio.current_time()
        info = await probe(addresses(settings.url), timeout=remaining, token=token, context=context)
        if self._closed:
            raise BrokerClosed("the connection was closed while it was made")

        self._client = self._new_client(token)
        return info

    async def subscribe(self, spec: ConsumerSpec, wake: Callable[[], None]) -> ClientConsumer:
        """Open a consumer.

        Raises:
            PulsarSubscribeError: The client or the server refused.
            NotConnected: `connect` was not awaited.
            BrokerClosed: The transport was closed.

        Cancel safety: a consumer that opens later is closed.
        """
        client, configuration = self._open_client(), binding.consumer_configuration(spec)
        answer = Answer(late=_close_late)
        client.subscribe_async(spec.topic, spec.subscription, configuration, answer.callback)
        result, native = await answer.wait()
        if int(result):
            raise subscribe_error(spec, result)

        self._still_open(native)

        consumer = ClientConsumer(
            native, spec, wake, close_timeout=self._settings.close_timeout, closed=self._consumers.discard
        )
        self._consumers.add(consumer)
        return consumer

    async def produce(self, spec: ProducerSpec) -> ClientProducer:
        """Open a producer.

        Raises:
            PulsarPublishError: The client or the server refused.
            NotConnected: `connect` was not awaited.
            BrokerClosed: The transport was closed.

        Cancel safety: a producer that opens later is closed.
        """
        client, configuration = self._open_client(), binding.producer_configuration(spec)
        answer = Answer(late=_close_late)
        client.create_producer_async(spec.topic, configuration, answer.callback)
        result, native = await answer.wait()
        if int(result):
            raise open_producer_error(spec.topic, result)

        self._still_open(native)

        producer = ClientProducer(
            native, spec.topic, close_timeout=self._settings.close_timeout, closed=self._producers.discard
        )
        self._producers.add(producer)
        return producer

    async def close(self) -> None:
        """Close consumers, then producers, then the client, within `close_timeout` in all.

        Cancel safety: the cancellation waits for the close.
        """
        self._closed = True
        client, self._client = self._client, None
        if client is None:
            return

        deadline = anyio.current_time() + self._settings.close_timeout
        producers = list(self._producers)
        await call_all(_begun(self._consumers), deadline=deadline)
        await call_all(_begun(producers), deadline=deadline)
        await call_all([client.close_async], deadline=deadline)
        for producer in producers:
            producer.give_up()

    async def _read_token(self, auth: Token) -> str:
        settings = self._settings
        try:
            return await read_token(auth, timeout=settings.connection_timeout)
        except PulsarConnectError as error:
            raise PulsarConnectError(f"cannot connect to {settings.url}: {error}", result=error.result) from error

    def _new_client(self, token: str | None) -> GuardedClient:
        settings, auth, tls = self._settings, self._settings.auth, self._settings.tls
        native = binding.new_client(
            settings.url,
            operation_timeout=settings.operation_timeout,
            connection_timeout=settings.connection_timeout,
            io_threads=settings.io_threads,
            log_file=log_file(),
            token=TokenSupplier(auth, token) if auth is not None and auth.changes and token is not None else token,
            trust_file=None if tls is None else trust_file(tls),
            verify_hostname=tls is None or tls.verify_hostname,
        )
        return GuardedClient(native, settings.close_timeout)

    def _open_client(self) -> Any:
        if self._closed:
            raise BrokerClosed("the connection is closed")

        if self._client is None:
            raise NotConnected("the connection is not made yet")

        return self._client.native

    def _still_open(self, native: Any) -> None:
        if self._closed:
            _close_late(None, native)
            raise BrokerClosed("the connection was closed meanwhile")


def _close_late(result: Any, native: Any) -> None:
    # The callback keeps nothing: the client itself waits for the close when it is closed.
    if result is None or not int(result):
        native.close_async(guarded(lambda *_: None))


def _begun(handles: Iterable[ClientConsumer | ClientProducer]) -> list[Call]:
    calls = [handle.begin_close() for handle in list(handles)]
    return [call for call in calls if call is not None]
