"""`PassingSubscription`: a subscription of a non-persistent topic, which keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from pystream_pulsar.transport import ConsumerSpec

from pystream_testing.pulsar._in_process import refusals
from pystream_testing.pulsar._in_process.entries import Copy, Entry
from pystream_testing.pulsar._in_process.rules import Rule, rule_for

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.consumer import InProcessConsumer

__all__ = ["PassingSubscription"]


class PassingSubscription:
    """Delivers a message to a consumer that has room at this moment, or not at all.

    Args:
        random: For what a server is free to choose.
        unsubscribed: Called when the subscription is deleted.
    """

    persistent = False
    ready = 0

    def __init__(self, random: Random, *, unsubscribed: Callable[[], None]) -> None:
        self._random = random
        self._unsubscribed = unsubscribed
        self._rule: Rule | None = None
        self._consumers: dict[InProcessConsumer, str] = {}

    @property
    def consumers(self) -> Iterable[InProcessConsumer]:
        return self._consumers

    def check(self, spec: ConsumerSpec) -> None:
        """Refuse a consumer that cannot attach.

        Raises:
            PulsarSubscribeError: The subscription is held exclusively, or by consumers of another type.
        """
        if self._rule is not None and (spec.type not in self._consumers.values() or not self._rule.admits()):
            raise refusals.busy(spec)

    def attach(self, consumer: InProcessConsumer) -> None:
        self._rule = self._rule or rule_for(consumer.spec, self._random)
        self._consumers[consumer] = consumer.spec.type
        self._rule.joined(consumer)

    def detach(self, consumer: InProcessConsumer, *, unsubscribe: bool) -> None:
        del self._consumers[consumer]
        if self._rule is not None:
            self._rule.left(consumer)

        if not self._consumers:
            self._rule = None
            if unsubscribe:
                self._unsubscribed()

    def offer(self, entry: Entry) -> None:
        """Deliver the entry if somebody takes it now."""
        consumer = None if self._rule is None else self._rule.choose(entry)
        if consumer is not None:
            consumer.deliver(Copy(entry, 0))

    def acknowledge(self, number: int) -> None:
        """Nothing was kept."""

    def redeliver(self, consumer: InProcessConsumer, numbers: Iterable[int]) -> None:
        """Nothing was kept."""

    def dispatch(self) -> None:
        """Nothing was kept."""
