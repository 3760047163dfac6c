"""`Topic`: a log and its subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from pystream.memory import Log
from pystream_pulsar import PulsarTopic
from pystream_pulsar.transport import ConsumerSpec

from pystream_testing.pulsar._in_process.entries import Entry, Stored
from pystream_testing.pulsar._in_process.passing import PassingSubscription
from pystream_testing.pulsar._in_process.subscription import Subscription

__all__ = ["Topic"]


class Topic:
    """One topic. A non-persistent one stores nothing and numbers nothing.

    Args:
        name: The full name.
        ledger: The number its entries carry, 1 or more.
        random: For what a server is free to choose.

    Attributes:
        subscriptions: By name.
    """

    def __init__(self, name: str, ledger: int, random: Random) -> None:
        self._name = name
        self._persistent = PulsarTopic(name).persistent
        self._ledger = ledger if self._persistent else 0
        self._random = random
        self._log: Log[Entry] = Log()
        self.subscriptions: dict[str, Subscription | PassingSubscription] = {}

    def subscription(self, spec: ConsumerSpec) -> Subscription | PassingSubscription:
        """The subscription of that name; a new one begins where the specification says."""
        found = self.subscriptions.get(spec.subscription)
        if found is None:
            found = self.subscriptions[spec.subscription] = self._new(spec)

        return found

    def append(self, messages: Sequence[Stored], *, batched: bool, producer: str) -> None:
        """Store one entry for the subscriptions there are, and deliver it."""
        entry = Entry(
            topic=self._name,
            ledger=self._ledger,
            number=self._log.end if self._persistent else 0,
            messages=tuple(messages),
            batched=batched,
            producer=producer,
        )
        if self._persistent:
            self._log.append(entry)
            self._trim()

        for subscription in list(self.subscriptions.values()):
            if isinstance(subscription, PassingSubscription):
                subscription.offer(entry)
            else:
                subscription.dispatch()

    def _new(self, spec: ConsumerSpec) -> Subscription | PassingSubscription:
        unsubscribed = partial(self._delete, spec.subscription)
        if not self._persistent:
            return PassingSubscription(self._random, unsubscribed=unsubscribed)

        start = self._log.first if spec.initial_position == "Earliest" else self._log.end
        return Subscription(self._log, start, self._random, acknowledged=self._trim, unsubscribed=unsubscribed)

    def _delete(self, name: str) -> None:
        del self.subscriptions[name]
        self._trim()

    def _trim(self) -> None:
        """Forget what no subscription needs; without subscriptions that is everything."""
        marks = [
            subscription.cursor.mark
            for subscription in self.subscriptions.values()
            if isinstance(subscription, Subscription)
        ]
        self._log.trim(min(marks, default=self._log.end))
