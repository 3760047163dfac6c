"""What the plugin needs of a Pulsar client: eight methods, and messages of ours.

The plugin's rules (counts, pacing, neighbours, copies in hand) all live above this
protocol, so that they hold over `pulsar-client` and over an in-process transport alike.
Every method of a consumer or producer is called on the owner's loop; the callbacks
given to one may come on any thread, and in line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from pystream.protocols import Outgoing

__all__ = [
    "ConsumerSpec",
    "Identity",
    "ProducerSpec",
    "RawMessage",
    "ServerInfo",
    "Transport",
    "TransportConsumer",
    "TransportProducer",
]

SubscriptionTypeName: TypeAlias = Literal["Exclusive", "Failover", "Shared", "KeyShared"]


class Identity(NamedTuple):
    """Which message this is, whatever object stands for it.

    Attributes:
        topic: The full topic name, with `-partition-N` where there is one.
        ledger: The ledger's number.
        entry: The entry in the ledger.
        batch_index: The place in the producer batch, or -1 outside one.
    """

    topic: str
    ledger: int
    entry: int
    batch_index: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server said when it was asked.

    Attributes:
        version: The server's own name and version, or empty when it could not be asked.
        max_message_size: The largest message in bytes, metadata included.
    """

    version: str = ""
    max_message_size: int = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """How to open a consumer.

    Attributes:
        topic: A full topic name.
        subscription: The subscription's name.
        type: One of the four types, as the client spells them.
        initial_position: Where a subscription that does not exist yet begins.
        receiver_queue_size: How many messages the client reads ahead, 1 or more.
        ack_timeout: Seconds until the client asks for unacknowledged messages again (10 or more), or none.
        consumer_name: A name that shows in the server's statistics, or none for a generated one.
        properties: Shown in the server's statistics.
        read_compacted: Read the compacted view; Exclusive and Failover only.
    """

    topic: str
    subscription: str
    type: SubscriptionTypeName
    initial_position: Literal["Latest", "Earliest"]
    receiver_queue_size: int
    ack_timeout: float | None = None
    consumer_name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    read_compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """How to open a producer.

    Attributes:
        topic: A full topic name.
        send_timeout: Seconds until an unconfirmed send fails.
        max_pending: The most sends the client holds unconfirmed.
        batching: Whether sends that overlap share an entry.
    """

    topic: str
    send_timeout: float
    max_pending: int
    batching: bool = True


class RawMessage(Protocol):
    """A message as the transport received it. Only `payload` is there for nothing."""

    payload: bytes

    @property
    def identity(self) -> Identity:
        """Which message this is."""

    @property
    def batch_size(self) -> int:
        """How many messages share its entry: 1 outside a producer batch."""

    @property
    def chunked(self) -> bool:
        """Whether it was put together from several entries."""

    @property
    def redelivery_count(self) -> int:
        """How often the server has redelivered its entry, from 0."""

    @property
    def position(self) -> bytes:
        """The serialised message id."""

    @property
    def key(self) -> str | None:
        """The partition key, or none."""

    @property
    def ordering_key(self) -> str | None:
        """The ordering key, or none."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties. Raises `DecodeError` when one of them is not UTF-8 (trap 15)."""

    @property
    def publish_time(self) -> float:
        """When the producer sent it, in seconds since 1970."""

    @property
    def event_time(self) -> float | None:
        """When it happened, in seconds since 1970, or none."""

    @property
    def producer_name(self) -> str:
        """Who sent it, or empty."""


class TransportConsumer(Protocol):
    """One open consumer."""

    def pull(self, room: int) -> Sequence[RawMessage]:
        """Up to `room` (1 or more) messages, without waiting.

        Fewer than `room` means armed: `wake` is called once, from any thread and perhaps in
        line, when a message has come, which the next pull brings, or when nothing will come
        any more. Never raises: a consumer that failed or was closed is told by `failure`.
        """

    @property
    def failure(self) -> Exception | None:
        """An error of ours saying why nothing comes any more, or none."""

    def ack(self, raw: RawMessage) -> None:
        """Acknowledge one message. Synchronous; raises an error of ours when refused."""

    def nack(self, raw: RawMessage) -> None:
        """Ask for the message's whole entry again. Synchronous; raises an error of ours when refused."""

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Close the consumer, at most within the transport's bound. Idempotent; never raises."""


class TransportProducer(Protocol):
    """One open producer."""

    def send(self, outgoing: Outgoing, done: Callable[[Exception | None], None]) -> None:
        """Send one message. `done` is called exactly once, from any thread and perhaps in line.

        It gets an error of ours, or none when the server has confirmed.
        """

    async def close(self) -> None:
        """Close the producer, at most within the transport's bound. Idempotent; never raises."""


class Transport(Protocol):
    """One connection to a cluster."""

    async def connect(self) -> ServerInfo:
        """Return once the server has answered. Raises `ConnectError` within its own deadline."""

    async def subscribe(self, spec: ConsumerSpec, wake: Callable[[], None]) -> TransportConsumer:
        """Open a consumer. Raises `SubscribeError`. Cancel safety: a consumer that opens later is closed."""

    async def produce(self, spec: ProducerSpec) -> TransportProducer:
        """Open a producer. Raises `PublishError`. Cancel safety: a producer that opens later is closed."""

    async def close(self) -> None:
        """Close what is still open: consumers, producers, then the client. Idempotent; never raises."""
