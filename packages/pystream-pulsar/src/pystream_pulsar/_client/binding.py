"""The one place that knows `_pulsar`, the private binding under `pulsar-client`.

The public package wraps each call so that its callbacks belong to asyncio or do not exist.
What the other modules of this package are handed from here are the binding's own clients,
consumers, producers and messages; they call methods on them and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import _pulsar  # an extension module without stubs, like all that comes out of it

from pystream_pulsar.transport import ConsumerSpec, ProducerSpec

__all__ = [
    "NativeError",
    "consumer_configuration",
    "new_client",
    "new_message",
    "poll",
    "producer_configuration",
    "result_name",
    "use_log_file",
]

NativeError: type[Exception] = _pulsar.PulsarException
"""What the binding's synchronous calls raise; the name of the class is the result's."""

_NACK_DELAY_MS = 100


def new_client(
    url: str,
    *,
    operation_timeout: float,
    connection_timeout: float,
    io_threads: int,
    log_file: tuple[str, str],
    token: str | Callable[[], str] | None = None,
    trust_file: str | None = None,
    verify_hostname: bool = True,
) -> Any:
    """A client that has not dialled yet.

    Args:
        url: The service URL.
        operation_timeout: Seconds for opening and closing; the binding knows whole seconds, at least 1.
        connection_timeout: Seconds for the connection below them.
        io_threads: Network threads, 1 or more.
        log_file: The least level and the path its log goes to.
        token: What the server knows us by, or a function the client asks for it on threads of its
            own and which must not raise; or none.
        trust_file: The path of the trusted certificates, for a URL with TLS.
        verify_hostname: Whether a certificate must be for the host in the URL.
    """
    configuration = _pulsar.ClientConfiguration()
    configuration.operation_timeout_seconds(max(1, round(operation_timeout)))
    configuration.connection_timeout(max(1, round(connection_timeout * 1000)))
    configuration.io_threads(io_threads)
    use_log_file(configuration, *log_file)
    if token is not None:
        configuration.authentication(_pulsar.AuthenticationToken.create(token))

    if trust_file is not None:
        configuration.tls_trust_certs_file_path(trust_file)
        configuration.tls_allow_insecure_connection(False)
        configuration.tls_validate_hostname(verify_hostname)  # the client's own default is not to

    return _pulsar.Client(url, configuration)


def use_log_file(configuration: Any, level: str, path: str) -> None:
    """Have the client write its log of `level` (`Info`, `Warn` or `Error`) and above to `path`."""
    configuration.set_file_logger(getattr(_pulsar.LoggerLevel, level), path)


def consumer_configuration(spec: ConsumerSpec) -> Any:
    """How the binding opens a consumer. Never with its dead letters, which lose messages."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.consumer_type(getattr(_pulsar.ConsumerType, spec.type))
    configuration.subscription_initial_position(getattr(_pulsar.InitialPosition, spec.initial_position))
    configuration.receiver_queue_size(spec.receiver_queue_size)
    configuration.negative_ack_redelivery_delay_ms(_NACK_DELAY_MS)
    configuration.batch_index_ack_enabled(False)
    configuration.read_compacted(spec.read_compacted)
    if spec.ack_timeout is not None:
        configuration.unacked_messages_timeout_ms(round(spec.ack_timeout * 1000))

    if spec.consumer_name is not None:
        configuration.consumer_name(spec.consumer_name)

    for name, value in spec.properties.items():
        configuration.property(name, value)

    return configuration


def producer_configuration(spec: ProducerSpec) -> Any:
    """How the binding opens a producer: see `producers` for the reasons."""
    configuration = _pulsar.ProducerConfiguration()
    configuration.send_timeout_millis(max(1, round(spec.send_timeout * 1000)))
    configuration.max_pending_messages(spec.max_pending)
    configuration.block_if_queue_full(False)
    configuration.batching_enabled(spec.batching)
    configuration.batching_max_publish_delay_ms(0)
    configuration.batching_type(_pulsar.BatchingType.KeyBased)
    configuration.partitions_routing_mode(_pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    return configuration


def new_message(payload: bytes, *, key: str | None, properties: Mapping[str, str]) -> Any:
    """A message to send."""
    builder = _pulsar.MessageBuilder()
    builder.content(payload)
    if key:
        builder.partition_key(key)

    if properties:
        builder.properties(properties)

    return builder.build()


def poll(consumer: Any, messages: list[Any], room: int) -> None:
    """Append what waits in the client to `messages`, up to `room`. Blocks for about 0.1 ms where less waits.

    Raises:
        NativeError: The consumer was closed. What it gave before is in `messages`.
    """
    receive, append = consumer.receive, messages.append
    try:
        for _ in range(room - len(messages)):
            append(receive(0))
    except _pulsar.Timeout:
        return


def result_name(answer: Any) -> str:
    """The name of a result, or of the result an exception of the binding stands for."""
    return type(answer).__name__ if isinstance(answer, BaseException) else str(answer.name)
