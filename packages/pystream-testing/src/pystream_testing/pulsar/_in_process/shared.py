"""SHARED: the consumers take turns, as far as they have room."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.consumer import InProcessConsumer
    from pystream_testing.pulsar._in_process.entries import Entry

__all__ = ["Shared"]


class Shared:
    """Each entry goes to the next consumer in turn that has permits."""

    individual = True

    def __init__(self) -> None:
        self._turns: deque[InProcessConsumer] = deque()

    @property
    def ready(self) -> bool:
        return any(consumer.permits > 0 for consumer in self._turns)

    def admits(self) -> bool:
        return True

    def joined(self, consumer: InProcessConsumer) -> bool:
        self._turns.append(consumer)
        return False

    def left(self, consumer: InProcessConsumer) -> bool:
        self._turns.remove(consumer)
        return False

    def lane(self, entry: Entry) -> str:
        return ""

    def choose(self, entry: Entry) -> InProcessConsumer | None:
        for _ in range(len(self._turns)):
            consumer = self._turns[0]
            self._turns.rotate(-1)
            if consumer.permits > 0:
                return consumer

        return None

    def sent(self, entry: Entry, consumer: InProcessConsumer) -> None:
        """Nothing to note."""

    def returned(self, entry: Entry) -> None:
        """Nothing to note."""
