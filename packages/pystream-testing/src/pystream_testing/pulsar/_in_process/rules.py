"""Who gets the next entry: what the types of subscriptions differ in."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from pystream_pulsar.transport import ConsumerSpec

from pystream_testing.pulsar._in_process.key_shared import KeyShared
from pystream_testing.pulsar._in_process.shared import Shared
from pystream_testing.pulsar._in_process.single_active import SingleActive

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.consumer import InProcessConsumer
    from pystream_testing.pulsar._in_process.entries import Entry

__all__ = ["Rule", "rule_for"]


class Rule(Protocol):
    """How one subscription type chooses, for as long as consumers of that type are attached."""

    @property
    def individual(self) -> bool:
        """Whether single entries can be asked for again, and are counted."""

    @property
    def ready(self) -> bool:
        """Whether any consumer would take an entry."""

    def admits(self) -> bool:
        """Whether one more consumer may attach."""

    def joined(self, consumer: InProcessConsumer) -> bool:
        """A consumer attached. Returns whether everything unacknowledged is to be delivered anew."""

    def left(self, consumer: InProcessConsumer) -> bool:
        """A consumer detached. Returns whether everything unacknowledged is to be delivered anew."""

    def lane(self, entry: Entry) -> str:
        """Entries of one lane do not overtake each other."""

    def choose(self, entry: Entry) -> InProcessConsumer | None:
        """Who gets the entry, or none if it has to wait."""

    def sent(self, entry: Entry, consumer: InProcessConsumer) -> None:
        """The entry was delivered."""

    def returned(self, entry: Entry) -> None:
        """The entry is in nobody's hands any more."""


def rule_for(spec: ConsumerSpec, random: Random) -> Rule:
    """The rule of the type that the first consumer asks for."""
    makers: dict[str, Callable[[], Rule]] = {
        "Exclusive": lambda: SingleActive(random, most=1),
        "Failover": lambda: SingleActive(random),
        "Shared": Shared,
        "KeyShared": lambda: KeyShared(random),
    }
    return makers[spec.type]()
