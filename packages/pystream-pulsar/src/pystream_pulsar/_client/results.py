"""From the client's 46 results to our errors: one sentence each, with the way out where there is one.

Trap 16: one result stands for several causes, and the sentence names them all.
"""

from __future__ import annotations

from typing import Any

from pystream_pulsar._client.binding import result_name
from pystream_pulsar.errors import (
    PulsarPublishError,
    PulsarSettlementError,
    PulsarSubscribeError,
    PulsarSubscriptionEnded,
)
from pystream_pulsar.transport import ConsumerSpec

__all__ = ["ended_error", "open_producer_error", "publish_error", "reason", "settlement_error", "subscribe_error"]

_REASONS = {
    "UnknownError": "the server failed without saying why; its log may tell",
    "InvalidConfiguration": "the client does not accept this combination of options",
    "Timeout": "the server did not answer in time",
    "LookupError": "the server could not say which broker serves the topic",
    "ConnectError": "the connection could not be made",
    "ReadError": "the connection broke while the answer was read",
    "AuthenticationError": "the server did not accept the credentials",
    "AuthorizationError": "the credentials are valid but do not permit this; ask for the permission on the topic",
    "ErrorGettingAuthenticationData": "the credentials could not be obtained",
    "BrokerMetadataError": "the server could not reach its metadata store",
    "BrokerPersistenceError": "the server could not reach its storage",
    "ChecksumError": "the message was damaged on the way to the server",
    "ConsumerBusy": "another consumer is attached to the subscription",
    "NotConnected": "the connection to the server is down",
    "AlreadyClosed": "it was closed before",
    "InvalidMessage": "the client does not accept the message",
    "ConsumerNotInitialized": "the consumer is not open",
    "ProducerNotInitialized": "the producer is not open",
    "ProducerBusy": "a producer of the same name is connected to the topic, or another one holds it exclusively",
    "TooManyLookupRequestException": "the server has too many look-ups in progress; try again later",
    "InvalidTopicName": "the client does not accept the topic's name",
    "InvalidUrl": "the client does not accept the service URL",
    "ServiceUnitNotReady": "the topic is being moved between brokers; try again later",
    "OperationNotSupported": "the server does not support this for the topic",
    "ProducerBlockedQuotaExceededError": "the topic's backlog quota is used up; consume or raise the quota",
    "ProducerBlockedQuotaExceededException": "the topic's backlog quota is used up; consume or raise the quota",
    "ProducerQueueIsFull": "too many messages wait for the server's confirmation; publish less at a time",
    "MessageTooBig": "the message is larger than the server accepts, properties and metadata included",
    "TopicNotFound": "the topic does not exist and is not created on demand, or its namespace or tenant does not exist",
    "SubscriptionNotFound": "the subscription does not exist",
    "ConsumerNotFound": "the server does not know the consumer",
    "UnsupportedVersionError": "the server is too old for this",
    "TopicTerminated": "the topic was terminated and takes no more messages",
    "CryptoError": "the message could not be encrypted or decrypted",
    "IncompatibleSchema": "the topic has another schema, with which ours is not compatible",
    "ConsumerAssignError": "the server could not assign keys to the consumer",
    "CumulativeAcknowledgementNotAllowedError": "the subscription's type has no cumulative acknowledgement",
    "TransactionCoordinatorNotFoundError": "the server has no transaction coordinator",
    "InvalidTxnStatusError": "the transaction is not in a state for this",
    "NotAllowedError": "the server does not allow it",
    "TransactionConflict": "another transaction has the message",
    "TransactionNotFound": "the transaction does not exist",
    "ProducerFenced": "another producer has taken the topic over exclusively",
    "MemoryBufferIsFull": "the client's memory limit is used up; publish less at a time",
    "Interrupted": "the client was interrupted",
}

_TYPES = {"Exclusive": "EXCLUSIVE", "Failover": "FAILOVER", "Shared": "SHARED", "KeyShared": "KEY_SHARED"}


def reason(name: str) -> str:
    """What a result means, without a full stop; the bare name for one we do not know."""
    text = _REASONS.get(name)
    return f"{text} ({name})" if text else name


def subscribe_error(spec: ConsumerSpec, answer: Any) -> PulsarSubscribeError:
    """Why `spec` could not be opened."""
    name = result_name(answer)
    why = _busy(spec) if name == "ConsumerBusy" else reason(name)
    return PulsarSubscribeError(f"subscription {spec.subscription!r} on {spec.topic}: {why}", result=name)


def _busy(spec: ConsumerSpec) -> str:
    ours = _TYPES[spec.type]
    return (
        f"the server refused our consumer of type {ours} (ConsumerBusy): either another consumer holds the "
        f"subscription exclusively, or its consumers are of another type than {ours}; close them, use their "
        "type, or choose another subscription name"
    )


def open_producer_error(topic: str, answer: Any) -> PulsarPublishError:
    """Why a producer on `topic` could not be opened."""
    name = result_name(answer)
    return PulsarPublishError(f"no producer could be opened on {topic}: {reason(name)}", result=name)


def publish_error(topic: str, answer: Any) -> PulsarPublishError:
    """Why a message to `topic` was not confirmed."""
    name = result_name(answer)
    doubt = "; it may have been stored all the same" if name in {"Timeout", "NotConnected", "ReadError"} else ""
    return PulsarPublishError(f"a message to {topic} was not confirmed: {reason(name)}{doubt}", result=name)


def settlement_error(what: str, spec: ConsumerSpec, answer: Exception) -> PulsarSettlementError:
    """Why a settlement, `what` it was, was not made."""
    name = result_name(answer)
    return PulsarSettlementError(
        f"{what} on subscription {spec.subscription!r} of {spec.topic} was not made: {reason(name)}", result=name
    )


def ended_error(spec: ConsumerSpec, name: str) -> PulsarSubscriptionEnded:
    """Why a consumer brings nothing any more."""
    return PulsarSubscriptionEnded(
        f"subscription {spec.subscription!r} on {spec.topic} brings nothing any more: {reason(name)}", result=name
    )
