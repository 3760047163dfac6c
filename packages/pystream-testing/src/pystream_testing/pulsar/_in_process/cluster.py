"""`InProcessCluster`: what a Pulsar server keeps, for as long as the object lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from random import Random

from pystream.protocols import Clock
from pystream_pulsar import PulsarTopic

from pystream_testing.pulsar._in_process.topic import Topic

__all__ = ["InProcessCluster", "SubscriptionCounts"]

_MAX_MESSAGE_SIZE = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SubscriptionCounts:
    """How many messages of a subscription are where; acknowledged ones are nowhere.

    Attributes:
        ready: Those that wait for a consumer with room.
        in_flight: Those that consumers have read ahead or handed out and not settled.
        held: Those whose entry was negatively acknowledged and has not been asked for again.
            All messages of such an entry count, since all of them come back.
    """

    ready: int
    in_flight: int
    held: int


class InProcessCluster:
    """A Pulsar cluster in the process: topics, durable subscriptions, and nothing else.

    Connections are opened with `InProcessTransport(cluster, clock)`; all of them belong to one
    event loop at a time. Topics come into being when they are first used. What a server is free
    to choose (which FAILOVER consumer is active, where a key goes) is drawn from `seed`, so that
    two runs of the same calls go alike.

    It keeps a message only as long as a subscription needs it. A server often keeps it a while
    longer by chance, so that a subscription made later from EARLIEST may find it there; a test
    must not rely on that. Acknowledgement timeouts and compaction are accepted and have no effect:
    what is not settled comes back when its consumer closes.

    Args:
        seed: For the choices.
        max_message_size: The largest message in bytes, 1 or more; metadata counts, as the client counts it.
        namespaces: Those that exist, as `tenant/name`, or none if every one does.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        max_message_size: int = _MAX_MESSAGE_SIZE,
        namespaces: Collection[str] | None = None,
    ) -> None:
        self.max_message_size: int = max_message_size
        self._random = Random(seed)  # noqa: S311 - choices that can be repeated, not secrets
        self._namespaces = None if namespaces is None else frozenset(namespaces)
        self._topics: dict[str, Topic] = {}
        self._numbers = count(1)
        # With the clock, so that its identity is not used again.
        self._offsets: dict[int, tuple[Clock, float]] = {}

    def owed(self, topic: str) -> int:
        """How many subscriptions a message published to a topic now will be delivered on.

        On a non-persistent topic a subscription without a consumer is owed nothing.

        Args:
            topic: Any name that `PulsarTopic` takes.

        Raises:
            ConfigurationError: It is no topic.
        """
        return len(self.routes(topic))

    def routes(self, topic: str) -> tuple[str, ...]:
        """The names of the subscriptions that `owed` counts, in the order of their making.

        Raises:
            ConfigurationError: It is no topic.
        """
        found = self._topics.get(PulsarTopic(topic).full_name)
        if found is None:
            return ()

        return tuple(
            name
            for name, subscription in found.subscriptions.items()
            if subscription.persistent or any(True for _ in subscription.consumers)
        )

    def counts(self, topic: str, subscription: str) -> SubscriptionCounts:
        """Where the messages of a subscription are; nothing at all for one that does not exist.

        Raises:
            ConfigurationError: It is no topic.
        """
        topic_found = self._topics.get(PulsarTopic(topic).full_name)
        found = None if topic_found is None else topic_found.subscriptions.get(subscription)
        if found is None:
            return SubscriptionCounts(0, 0, 0)

        consumers = list(found.consumers)
        return SubscriptionCounts(
            ready=found.ready,
            in_flight=sum(consumer.in_flight for consumer in consumers),
            held=sum(consumer.held for consumer in consumers),
        )

    # What follows is for the transport.

    def _has(self, topic: str) -> bool:
        """Whether the namespace of a topic exists."""
        name = PulsarTopic(topic)
        return self._namespaces is None or f"{name.tenant}/{name.namespace}" in self._namespaces

    def _topic(self, topic: str) -> Topic:
        """A topic, made if it is new."""
        found = self._topics.get(topic)
        if found is None:
            # Publishes from other threads open topics too; of two that meet, both get the same one.
            found = self._topics.setdefault(topic, Topic(topic, next(self._numbers), self._random))

        return found

    def _number(self) -> int:
        """A number that tells handles of this cluster apart."""
        return next(self._numbers)

    def _wall(self, clock: Clock) -> Callable[[], float]:
        """The time in seconds since 1970 that goes by `clock`, the same for all that have this clock."""
        _, offset = self._offsets.setdefault(id(clock), (clock, time.time() - clock.now()))
        return lambda: offset + clock.now()
