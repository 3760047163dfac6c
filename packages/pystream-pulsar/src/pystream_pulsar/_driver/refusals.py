"""Retries that a subscription cannot make, refused before anything is settled."""

from __future__ import annotations

from pystream.errors import SettlementRejected, SettlementUnsupported

from pystream_pulsar.message import PulsarMessage
from pystream_pulsar.subscription import PulsarSubscription

__all__ = ["check_delay", "check_retry"]


def check_delay(source: PulsarSubscription, delay: float) -> None:
    """Refuse a delay that the subscription cannot hold.

    Raises:
        SettlementRejected: It reaches the acknowledgement timeout, or is no delay.
    """
    longest = source.ack_timeout
    if longest is not None and delay >= longest:
        raise SettlementRejected(
            f"retry_after({delay:g}) on {source.name}: the delay must stay below the subscription's ack_timeout of "
            f"{longest:g} s, or the client asks for the message first; shorten the delay or raise ack_timeout"
        )

    if not 0 <= delay < float("inf"):
        raise SettlementRejected(f"retry_after({delay!r}) on {source.name}: give 0 or more seconds")


def check_retry(source: PulsarSubscription, message: PulsarMessage) -> None:
    """Trap 5: refuse a negative acknowledgement that would bring back too much, or nothing.

    Raises:
        SettlementUnsupported: The subscription, or this message, is retried in place.
    """
    if source.retry == "in_place":
        raise SettlementUnsupported(
            f"{source.name} cannot deliver one message again: on a subscription of type {source.type.name} to a "
            f"{source.topic.persistence} topic messages are retried in place"
        )

    if message._raw.chunked:
        raise SettlementUnsupported(
            f"message {message.id} of {message.topic} came in chunks, and Pulsar does not deliver these again on "
            "request; it is retried in place"
        )
