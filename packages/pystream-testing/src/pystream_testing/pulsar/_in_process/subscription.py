"""`Subscription`: the server's half: how far it has come, who has what, and what comes again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from pystream.memory import Cursor, Log
from pystream_pulsar.transport import ConsumerSpec

from pystream_testing.pulsar._in_process import refusals
from pystream_testing.pulsar._in_process.entries import Copy, Entry
from pystream_testing.pulsar._in_process.rules import Rule, rule_for

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.consumer import InProcessConsumer

__all__ = ["Subscription"]


class Subscription:
    """One durable subscription of one persistent topic.

    Args:
        log: What the topic stores.
        start: The number of the first entry that is the subscription's.
        random: For what a server is free to choose.
        acknowledged: Called when an entry was acknowledged.
        unsubscribed: Called when the subscription is deleted.
    """

    persistent = True

    def __init__(
        self,
        log: Log[Entry],
        start: int,
        random: Random,
        *,
        acknowledged: Callable[[], None],
        unsubscribed: Callable[[], None],
    ) -> None:
        self.cursor = Cursor(start)
        self._log = log
        self._random = random
        self._acknowledged = acknowledged
        self._unsubscribed = unsubscribed
        self._rule: Rule | None = None
        self._consumers: dict[InProcessConsumer, str] = {}
        self._replay: set[int] = set()
        self._counts: dict[int, int] = {}
        self._holders: dict[int, InProcessConsumer] = {}
        self._dispatching = False
        self._again = False

    @property
    def consumers(self) -> Iterable[InProcessConsumer]:
        """Those attached, in the order of their attaching."""
        return self._consumers

    @property
    def ready(self) -> int:
        """How many messages wait for a consumer with room."""
        unread = range(max(self.cursor.position, self.cursor.mark), self._log.end)
        waiting = [*self._replay, *(number for number in unread if not self.cursor.is_acknowledged(number))]
        return sum(len(self._log.read(number).messages) for number in waiting)

    def check(self, spec: ConsumerSpec) -> None:
        """Refuse a consumer that cannot attach.

        Raises:
            PulsarSubscribeError: The subscription is held exclusively, or by consumers of another type.
        """
        if self._rule is not None and (spec.type not in self._consumers.values() or not self._rule.admits()):
            raise refusals.busy(spec)

    def attach(self, consumer: InProcessConsumer) -> None:
        """Begin to deliver to a consumer."""
        rule = self._rule = self._rule or rule_for(consumer.spec, self._random)
        self._consumers[consumer] = consumer.spec.type
        if rule.joined(consumer):
            self.cursor.rewind()

        self.dispatch()

    def detach(self, consumer: InProcessConsumer, *, unsubscribe: bool) -> None:
        """Take back what a consumer has; the counts stay as long as another consumer does."""
        rule = self._rule
        if rule is None:
            return

        del self._consumers[consumer]
        anew = rule.left(consumer)
        if not self._consumers:
            self._forget_deliveries()
            if unsubscribe:
                self._unsubscribed()

            return

        for number in [number for number, holder in self._holders.items() if holder is consumer]:
            self._take_back(number)

        if anew:
            self.cursor.rewind()

        self.dispatch()

    def acknowledge(self, number: int) -> None:
        """Have an entry done, whoever has it."""
        if self.cursor.is_acknowledged(number):
            return

        if self._holders.pop(number, None) is not None and self._rule is not None:
            self._rule.returned(self._log.read(number))

        self._replay.discard(number)
        self._counts.pop(number, None)
        self.cursor.acknowledge(number)
        self._acknowledged()
        self.dispatch()

    def redeliver(self, consumer: InProcessConsumer, numbers: Iterable[int]) -> None:
        """Deliver these entries of a consumer again, to whoever's turn it is, their counts raised.

        Where one consumer gets everything in order, everything unacknowledged comes again, uncounted.
        """
        if self._rule is not None and not self._rule.individual:
            self.cursor.rewind()
        else:
            for number in numbers:
                if self._holders.get(number) is consumer:
                    self._counts[number] = self._counts.get(number, 0) + 1
                    self._take_back(number)

        self.dispatch()

    def dispatch(self) -> None:
        """Deliver what can be delivered. A consumer may cause another call from within this one."""
        self._again = True
        if self._dispatching:
            return

        self._dispatching = True
        try:
            while self._again:
                self._again = False
                self._deliver_ready()

        finally:
            self._dispatching = False

    def _deliver_ready(self) -> None:
        behind: set[str] = set()
        for number in sorted(self._replay):
            # A consumer that is woken may settle what would have come next.
            if number in self._replay and self._deliver(number, behind):
                self._replay.discard(number)

        while self._rule is not None and self._rule.ready:
            following = self.cursor.next(self._log.end)
            if following is None:
                return

            if not self._deliver(following, behind):
                self._replay.add(following)

    def _deliver(self, number: int, behind: set[str]) -> bool:
        """Whether an entry went out; if not, later ones of its lane stay behind it."""
        rule, entry = self._rule, self._log.read(number)
        if rule is None or rule.lane(entry) in behind:
            return False

        consumer = rule.choose(entry)
        if consumer is None:
            behind.add(rule.lane(entry))
            return False

        if rule.individual:
            self._holders[number] = consumer
            rule.sent(entry, consumer)

        consumer.deliver(Copy(entry, self._counts.get(number, 0)))
        return True

    def _take_back(self, number: int) -> None:
        del self._holders[number]
        self._replay.add(number)
        if self._rule is not None:
            self._rule.returned(self._log.read(number))

    def _forget_deliveries(self) -> None:
        self._rule = None
        self._replay.clear()
        self._counts.clear()
        self._holders.clear()
        self.cursor.rewind()
