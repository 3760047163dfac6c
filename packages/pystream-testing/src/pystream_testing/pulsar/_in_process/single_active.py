"""EXCLUSIVE and FAILOVER: one consumer gets everything, in order."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.consumer import InProcessConsumer
    from pystream_testing.pulsar._in_process.entries import Entry

__all__ = ["SingleActive"]


class SingleActive:
    """One active consumer; the others wait for it to leave.

    Who is active does not follow the order of attaching: the server goes by a hash of
    names. Here each consumer draws a place, so one that joins may take over.

    Args:
        random: Draws the places.
        most: How many consumers may attach, or none without a bound.
    """

    individual = False

    def __init__(self, random: Random, *, most: int | None = None) -> None:
        self._random = random
        self._most = most
        self._places: dict[InProcessConsumer, float] = {}
        self._active: InProcessConsumer | None = None

    @property
    def ready(self) -> bool:
        return self._active is not None and self._active.permits > 0

    def admits(self) -> bool:
        return self._most is None or len(self._places) < self._most

    def joined(self, consumer: InProcessConsumer) -> bool:
        self._places[consumer] = self._random.random()
        return self._appoint()

    def left(self, consumer: InProcessConsumer) -> bool:
        del self._places[consumer]
        return self._appoint()

    def lane(self, entry: Entry) -> str:
        return ""

    def choose(self, entry: Entry) -> InProcessConsumer | None:
        return self._active if self.ready else None

    def sent(self, entry: Entry, consumer: InProcessConsumer) -> None:
        """Nothing to note."""

    def returned(self, entry: Entry) -> None:
        """Nothing to note."""

    def _appoint(self) -> bool:
        before, self._active = self._active, min(self._places, key=self._places.__getitem__, default=None)
        return before is not self._active
