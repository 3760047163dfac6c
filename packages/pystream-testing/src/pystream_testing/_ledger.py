"""What a server still owes to the subscriptions of an app, counted from what was published and settled.

A live run knows no more: the server says nothing of what it holds. So each message is counted
for every subscription that will get it, by its payload, and struck off when it was handled;
what comes from elsewhere, an old backlog or another publisher, changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from time import monotonic

from pystream.harness import Brokers
from pystream.protocols import Outgoing

from pystream_testing._transports import Routing

__all__ = ["Group", "Ledger"]


class Group:
    """Subscriptions that share the messages of a destination.

    Attributes:
        names: Their names.
        expected: How many deliveries they were owed so far.
        handled: How many of these they have handled.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.expected = 0
        self.handled = 0
        self.outstanding: Counter[bytes] = Counter()
        self.delayed: list[tuple[float, bytes]] = []

    def __str__(self) -> str:
        return f"{' and '.join(self.names)}: {self.handled} of {self.expected} deliveries handled"

    def owe(self, payload: bytes) -> None:
        self.expected += 1
        self.outstanding[payload] += 1

    def strike(self, payload: bytes) -> bool:
        """Take one off; answers whether it was owed."""
        if self.outstanding[payload] > 0:
            self.outstanding[payload] -= 1
            return True

        held = next((item for item in self.delayed if item[1] == payload), None)
        if held is None:
            return False

        self.delayed.remove(held)  # it came before anybody has asked whether it is due
        self.expected += 1
        return True


class Ledger:
    """The debts to every group of an app.

    Args:
        brokers: The app's.
        routing: By the place of a broker: how it names destinations and groups subscriptions.
        now: The time that delays go by, in seconds.
    """

    def __init__(self, brokers: Brokers, routing: Sequence[Routing], now: Callable[[], float] = monotonic) -> None:
        self._routing = routing
        self._now = now
        self._readers: dict[tuple[int, str], list[Group]] = defaultdict(list)
        self._by_name: dict[str, Group] = {}
        groups: dict[tuple[int, Hashable], Group] = {}
        for place, broker in enumerate(brokers):
            for handler in broker.handlers:
                key = (place, routing[place].group(handler.source, handler.mounting))
                group = groups.get(key)
                if group is None:
                    group = groups[key] = Group()
                    self._readers[place, routing[place].resolve(handler.source.name)].append(group)

                group.names.append(handler.name)
                self._by_name[handler.name] = group

        self._groups = list(groups.values())

    def owe(self, broker: int, outgoing: Outgoing) -> None:
        """A message is about to be published."""
        for group in self._readers_of(broker, outgoing):
            group.owe(outgoing.payload)

    def forgive(self, broker: int, outgoing: Outgoing) -> None:
        """It was not published."""
        for group in self._readers_of(broker, outgoing):
            if group.strike(outgoing.payload):
                group.expected -= 1

    def owe_again(self, name: str, payload: bytes, delay: float | None) -> None:
        """A delivery is about to be given back."""
        group = self._by_name[name]
        if delay is None:
            group.owe(payload)
        else:
            group.delayed.append((self._now() + delay, payload))

    def handled(self, name: str, payload: bytes) -> None:
        """The work on a delivery is over."""
        group = self._by_name[name]
        if group.strike(payload):
            group.handled += 1

    def owing(self) -> list[Group]:
        """The groups that have not got everything they should have by now."""
        now = self._now()
        for group in self._groups:
            due = [item for item in group.delayed if item[0] <= now]
            group.delayed = [item for item in group.delayed if item[0] > now]
            for _, payload in due:
                group.owe(payload)

        return [group for group in self._groups if group.outstanding.total() > 0]

    def _readers_of(self, broker: int, outgoing: Outgoing) -> list[Group]:
        return self._readers.get((broker, self._routing[broker].resolve(outgoing.destination)), [])
