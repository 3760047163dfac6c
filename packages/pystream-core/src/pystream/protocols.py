"""The broker SDK: what a plugin implements, and what it may rely on.

A plugin implements `Broker`, `ConnectedBroker`, `SubscriptionSource`, `Subscriber`,
`Delivery`, `Publisher` and `PublishPolicy`, and nothing else. The runtime hands it a
`Clock` and, for each mounted handler, a `Mounting`. This module imports nothing of the
runtime; every rule a plugin must keep stands on the method it is about.

Three words are used throughout. The *owner's loop* is the event loop on which
`Broker.connect` was awaited. *Synchronous* means: no suspension and no I/O. *Settled*
means that `Delivery.ack`, `Delivery.reject`, `Delivery.requeue` or a capability's
settlement was called.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

__all__ = [
    "GAP",
    "Broker",
    "Clock",
    "ConnectedBroker",
    "Delivery",
    "Gap",
    "Key",
    "Mounting",
    "Outgoing",
    "PublishPolicy",
    "Publisher",
    "RetryAfter",
    "RetryKind",
    "Signal",
    "SourceParameters",
    "Subscriber",
    "SubscriptionSource",
    "Timer",
]

Key: TypeAlias = "str | bytes"
"""A message key, as the broker spells it: text (Pulsar) or bytes (most others)."""

RetryKind: TypeAlias = Literal["broker", "in_place"]
"""Who runs a retried delivery again: the broker by redelivery, or the handling task."""

SourceParameters: TypeAlias = "Mapping[Any, Callable[[Any], Any]]"
"""A type, or a marker in `Annotated`, to the getter of its value from a delivery."""


class Gap(enum.Enum):
    """The type of `GAP`."""

    GAP = "gap"


GAP: Final = Gap.GAP
"""What `Subscriber.take` answers once after a seek: what follows does not continue what came before."""


class Timer(Protocol):
    """A call that a `Clock` was asked to make later."""

    def cancel(self) -> None:
        """Make sure the call is not made; without effect once it was made. Synchronous."""


class Clock(Protocol):
    """The time a plugin keeps: the loop's in production, a virtual one in tests.

    Delays, backoff and discovery periods go by this clock and no other, or a test that
    moves time cannot reach them. All methods belong to the owner's loop.
    """

    def now(self) -> float:
        """The present time in seconds, monotonic, from an origin of the clock's own."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the owner's loop in `delay` seconds (0 or more), outside any task.

        The callback must not raise. The call is never made from within `call_later`.
        """


class Signal(Protocol):
    """A wake-up for one waiter; `pystream.signal.Signal` implements it for plugin authors.

    A wake-up that comes while nobody waits is kept, so that the next `wait` returns at
    once; several of them count as one.
    """

    async def wait(self) -> None:
        """Return once a wake-up has come since the last `wait` returned.

        At most one task may wait at a time. Cancel safety: a cancelled wait loses no wake-up.
        """

    def wake(self) -> None:
        """Wake the waiter. Synchronous; only on the waiter's loop."""

    def wake_from_thread(self) -> None:
        """Wake the waiter from any thread. Coalesced; without effect on a closed loop; never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounting:
    """What a plugin may need to know of a mounted handler.

    Attributes:
        name: The subscription's name within the app, unique per broker.
        label: The broker's label, or none.
        concurrency: The most deliveries the dispatch form holds unsettled, 1 or more. What
            the plugin reads ahead comes on top.
        batch_size: The most deliveries in one call of the handler, or none without batches.
        max_attempts: How often the handler may see one delivery, or none without a cap.
        dead_letter: Where spent deliveries are published, or none.
        payload_type: The annotation of the payload parameter.
    """

    name: str
    label: str | None = None
    concurrency: int = 1
    batch_size: int | None = None
    max_attempts: int | None = None
    dead_letter: str | None = None
    payload_type: Any = bytes


@dataclass(slots=True)
class Outgoing:
    """A message on its way to a broker: bytes, encoded already.

    Attributes:
        destination: The name as the caller gave it; the plugin resolves it.
        payload: The encoded body, possibly empty.
        headers: Names as they are sent; values are bytes.
        key: What keeps messages in order with each other, or none.
    """

    destination: str
    payload: bytes
    headers: Mapping[str, bytes]
    key: Key | None = None


class Delivery(Protocol):
    """One message handed to the service, and the way to settle it.

    The attributes may be plain slots or computed at the first access. Reading `headers`
    may raise `pystream.errors.DecodeError` where the wire form cannot be read; nothing
    else raises. A delivery is settled once: a second settlement raises
    `pystream.errors.SettlementError`. The settlements are coroutines that never suspend on
    the owner's loop, may be awaited on any other loop or thread, and keep working after
    `Subscriber.close` has begun until it has waited for them. One that returns was accepted:
    the server knows of it then, or, where telling it takes I/O, as soon as the plugin has
    told it, which `Subscriber.close` waits for within its bound. If that fails, the plugin
    logs a WARNING, and the message comes again as if it had not been settled. Cancel safety
    of all of them: a cancelled settlement may or may not have been made.
    """

    @property
    def id(self) -> str:
        """The broker's identity of the message, for logs."""

    @property
    def destination(self) -> str:
        """The full name of the topic, queue or subject the message was published to."""

    @property
    def payload(self) -> bytes:
        """The body as it came, not copied; empty where the broker has none."""

    @property
    def headers(self) -> Mapping[str, bytes]:
        """Names as they were sent, values as bytes. Raises `DecodeError` if they cannot be read."""

    @property
    def key(self) -> Key | None:
        """The message key; none and the empty key are both none."""

    @property
    def lane_key(self) -> Key | None:
        """What `workers=by_key(n)` goes by: the key, unless the broker orders by something else."""

    @property
    def delivery_count(self) -> int | None:
        """How often the broker has handed out this message, this time included, from 1; or none.

        None means the broker does not count, for this message or at all. One that cannot requeue
        answers none: what is retried is a copy then, which its header counts.
        """

    @property
    def decode_error(self) -> Exception | None:
        """Why the broker's wire form could not be read as a message, or none."""

    @property
    def retry(self) -> RetryKind | None:
        """Overrides the source's kind of retry for this delivery; none (the rule) keeps it."""

    async def ack(self) -> None:
        """Settle as done: the broker will not hand it out again on this subscription."""

    async def reject(self) -> None:
        """Settle as refused: the broker will not hand it out again; what else it does is its affair."""

    async def requeue(self) -> None:
        """Settle as to be handed out again, as soon as the broker will, its count raised if it counts.

        Raises:
            SettlementUnsupported: The broker cannot do it, and has not.
        """

    def release(self) -> None:
        """Say that the runtime will not settle this one. Synchronous, from any thread.

        Without effect on a delivery that is settled or released already.
        The broker gets the message back when the subscriber closes. Used only on the way
        out; a running service settles what it takes.
        """


@runtime_checkable
class RetryAfter(Protocol):
    """Capability of a `Delivery`: it can be handed out again no sooner than a given time."""

    async def retry_after(self, delay: float) -> None:
        """Settle as to be handed out again no sooner than `delay` seconds from now (0 or more).

        Success means that the delay was accepted, not that it has passed. Until then the
        broker or the plugin holds the message, and `Subscriber.delayed` counts it if the
        plugin does. A delay does not survive `Subscriber.close`: a held message may come
        back early.

        Raises:
            SettlementRejected: The delay is longer than the source's `max_delay`; nothing was settled.
        """


class Subscriber(Protocol):
    """A stream of deliveries. Everything but `close` belongs to the owner's loop."""

    def take(self) -> Delivery | Gap | None:
        """The next buffered delivery; `GAP` when a seek has cut the stream; none when a wait is due.

        Synchronous, and never raises: a failure of the stream is told by `wait`.
        """

    async def wait(self) -> None:
        """Return when a `take` may succeed; early returns are allowed.

        One task waits at a time. It holds nothing. Cancel safety: cancelling it loses no message.

        Raises:
            SubscriptionEnded: Nothing will come any more.
            PyStreamError: The stream is broken for now; another `wait` tries again.
        """

    def interrupt(self) -> None:
        """End the present `wait`, or the next one if there is none. Synchronous; takes nothing away."""

    @property
    def delayed(self) -> int:
        """How many deliveries the plugin itself holds back for a delay, 0 or more."""

    async def close(self) -> None:
        """End the stream within the broker's bound and give back what was not settled.

        Settlements keep working until everything taken is settled or released, or the
        bound is spent; they raise `BrokerClosed` afterwards. Those accepted are made. What was
        buffered or held for a delay goes back to the broker. Idempotent. Cancel safety: a cancelled close leaves
        the subscriber closed, and possibly some messages to the broker's own timeouts.
        """


class SubscriptionSource(Protocol):
    """Where a handler's deliveries come from: a plain, comparable value, validated at construction."""

    @property
    def name(self) -> str:
        """The name the subscription is reported by: the topic's if there is one."""

    @property
    def retry(self) -> RetryKind:
        """Who runs a retried delivery again."""

    @property
    def batch_wait(self) -> float | None:
        """The default wait for a batch to fill, in seconds, or none for the runtime's (10 ms)."""

    @property
    def max_delay(self) -> float | None:
        """The bound that every delay must stay below, in seconds, or none without one."""

    @property
    def copies_to(self) -> str | None:
        """Where a copy of one of its messages is published, or none if it reads several destinations.

        With none, a mount whose attempts are capped has to name the place with `retry_to=`.
        """

    @property
    def parameters(self) -> SourceParameters:
        """What a handler may ask of a delivery of this source besides payload, headers and context."""


class PublishPolicy(Protocol):
    """Plain configuration of a publisher, validated at construction."""

    @property
    def options(self) -> type | None:
        """The type of the options a single publish may give, or none if it may give none."""


class Publisher(Protocol):
    """Sends messages; made by a connected broker, closed with it."""

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        """Return when the broker has confirmed the message. From any loop or thread of the app.

        Args:
            outgoing: The message. The plugin does not keep it and does not change it.
            options: A value of the policy's options type, for this message alone, or none.

        Raises:
            PublishError: The message was refused or not confirmed; after a time-out it may
                have been stored all the same.
            NotConnected: The broker is not connected yet.
            BrokerClosed: The broker was closed.

        Cancel safety: a cancelled publish may or may not have been sent.
        """


class ConnectedBroker(Protocol):
    """A live connection. Belongs to the loop on which it was made."""

    async def subscribe(self, source: Any, mounting: Mounting) -> Subscriber:
        """Open one subscription for one mounted handler.

        Raises:
            SubscribeError: The broker refused, naming the subscription and the reason.
        """

    def publisher(self, policy: Any = None) -> Publisher:
        """A publisher over this connection; `default_policy()` if none is given. No I/O."""

    def default_policy(self) -> PublishPolicy:
        """The policy of publishers for which the service states none."""

    async def close(self) -> None:
        """End every handle of this connection; they raise `BrokerClosed` afterwards.

        The subscribers were closed before. Publishes that were confirmed stay published.
        Idempotent. Cancel safety: a cancelled close leaves the connection closed.
        """


class Broker(Protocol):
    """Plain configuration of a broker. Construction does no I/O and starts nothing."""

    @property
    def source_types(self) -> tuple[type, ...]:
        """The classes of descriptors that `ConnectedBroker.subscribe` takes, at least one."""

    def default_source(self, name: str) -> SubscriptionSource:
        """The source that a bare name in `@subscriber("name")` stands for. No I/O.

        Raises:
            ConfigurationError: The name is none, or a bare name needs a setting that is missing.
        """

    def describe(self) -> str:
        """The broker's address for logs and errors, without credentials. No I/O."""

    async def connect(self, clock: Clock) -> ConnectedBroker:
        """Connect, and return only after the server has answered.

        Args:
            clock: The clock that everything timed in this connection goes by.

        Raises:
            ConnectError: With the address and the reason, within the plugin's own deadline.

        Cancel safety: a cancelled connect leaves nothing open.
        """


BrokerFactory: TypeAlias = "Callable[[str], Broker]"
"""What an entry point of the group `pystream.brokers` names: a URL to a broker."""
