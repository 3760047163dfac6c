"""Short forms of what the facts do with the public client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pulsar

__all__ = ["BACK", "QUIET", "Session", "holds_within", "is_quiet", "receive"]

BACK = 10_000
"""Milliseconds until what must come has come."""

QUIET = 1_000
"""Milliseconds for which nothing comes, where nothing must."""

_Type = pulsar.ConsumerType


class Session:
    """A client, and one topic.

    Attributes:
        client: The public client.
        topic: The full name.
    """

    def __init__(self, client: Any, topic: str) -> None:
        self.client = client
        self.topic = topic

    def subscribe(self, kind: Any = _Type.Shared, **options: Any) -> Any:
        """A consumer of the subscription `s`, at EARLIEST, whose negative acknowledgements take 100 ms."""
        return self.client.subscribe(
            self.topic,
            "s",
            consumer_type=kind,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=100,
            **options,
        )

    def publish(self, payloads: Iterable[bytes]) -> None:
        """Each in an entry of its own."""
        producer = self.client.create_producer(self.topic, batching_enabled=False)
        for payload in payloads:
            producer.send(payload)

        producer.close()

    def publish_entry(self, payloads: Iterable[bytes]) -> None:
        """All of them in one entry."""
        producer = self.client.create_producer(
            self.topic, batching_enabled=True, batching_max_publish_delay_ms=10_000, batching_max_messages=1_000
        )
        confirmed = threading.Semaphore(0)
        sent = [producer.send_async(payload, lambda *_: confirmed.release()) for payload in payloads]
        producer.flush()
        assert all(confirmed.acquire(timeout=20) for _ in sent)
        producer.close()


def receive(consumer: Any, count: int, milliseconds: int = BACK) -> list[Any]:
    """The next messages, in the order of their arrival."""
    return [consumer.receive(milliseconds) for _ in range(count)]


def is_quiet(consumer: Any, milliseconds: int = QUIET) -> bool:
    """Whether nothing comes for a while."""
    try:
        consumer.receive(milliseconds)
    except pulsar.Timeout:
        return True

    return False


def holds_within(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether a condition comes to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False

        time.sleep(0.02)

    return True
