"""What is refused, in the words of a live connection: tests that read messages hold in process and live."""

from __future__ import annotations

from pystream_pulsar import (
    PulsarPublishError,
    PulsarSettlementError,
    PulsarSubscribeError,
    PulsarSubscriptionEnded,
)
from pystream_pulsar.transport import ConsumerSpec

__all__ = [
    "busy",
    "ended",
    "key_not_text",
    "no_producer",
    "no_subscription",
    "not_confirmed",
    "not_settled",
    "not_text",
]

_REASONS = {
    "AlreadyClosed": "it was closed before",
    "InvalidConfiguration": "the client does not accept this combination of options",
    "MessageTooBig": "the message is larger than the server accepts, properties and metadata included",
    "ProducerQueueIsFull": "too many messages wait for the server's confirmation; publish less at a time",
    "TopicNotFound": (
        "the topic does not exist and is not created on demand, or its namespace or tenant does not exist"
    ),
}

_TYPES = {"Exclusive": "EXCLUSIVE", "Failover": "FAILOVER", "Shared": "SHARED", "KeyShared": "KEY_SHARED"}


def busy(spec: ConsumerSpec) -> PulsarSubscribeError:
    """Another consumer stands in the way of this one."""
    ours = _TYPES[spec.type]
    return PulsarSubscribeError(
        f"subscription {spec.subscription!r} on {spec.topic}: the server refused our consumer of type {ours} "
        "(ConsumerBusy): either another consumer holds the subscription exclusively, or its consumers are of "
        f"another type than {ours}; close them, use their type, or choose another subscription name",
        result="ConsumerBusy",
    )


def no_subscription(spec: ConsumerSpec, result: str) -> PulsarSubscribeError:
    """A consumer that cannot be opened."""
    return PulsarSubscribeError(f"subscription {spec.subscription!r} on {spec.topic}: {_reason(result)}", result=result)


def no_producer(topic: str, result: str) -> PulsarPublishError:
    """A producer that cannot be opened."""
    return PulsarPublishError(f"no producer could be opened on {topic}: {_reason(result)}", result=result)


def not_confirmed(topic: str, result: str) -> PulsarPublishError:
    """A message that was refused."""
    return PulsarPublishError(f"a message to {topic} was not confirmed: {_reason(result)}", result=result)


def key_not_text(topic: str) -> PulsarPublishError:
    """A key that Pulsar cannot carry."""
    return PulsarPublishError(
        f"a message to {topic} has a key that is not UTF-8 text, and Pulsar's keys are; encode it as text first"
    )


def not_text(topic: str, header: str) -> PulsarPublishError:
    """A header that Pulsar cannot carry."""
    return PulsarPublishError(
        f"header {header!r} of a message to {topic} is not UTF-8 text, and Pulsar's properties are; "
        "encode its value as text first"
    )


def not_settled(spec: ConsumerSpec) -> PulsarSettlementError:
    """An acknowledgement by a consumer that is closed."""
    return PulsarSettlementError(
        f"an acknowledgement on subscription {spec.subscription!r} of {spec.topic} was not made: "
        f"{_reason('AlreadyClosed')}",
        result="AlreadyClosed",
    )


def ended(spec: ConsumerSpec) -> PulsarSubscriptionEnded:
    """A consumer that is closed brings nothing."""
    return PulsarSubscriptionEnded(
        f"subscription {spec.subscription!r} on {spec.topic} brings nothing any more: {_reason('AlreadyClosed')}",
        result="AlreadyClosed",
    )


def _reason(result: str) -> str:
    return f"{_REASONS[result]} ({result})"
