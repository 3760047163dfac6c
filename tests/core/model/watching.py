"""What must hold at every moment of every schedule, checked event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from tests.core.model.schedules import Decided

__all__ = ["Check", "Event", "Rejected", "Watch"]

Check: TypeAlias = Literal[
    "bound kept",  # never more in hand, and never more at once, than promised
    "bound reached",  # as many are in hand as there is room for
    "free worker",  # taken only when there is room
    "order",  # of the stream, or of a key; nothing overlaps, nothing overtakes what was given back
    "once",  # each delivery ends once
    "handled first",  # nothing is settled before its handler has ended
    "outcome",  # the settlement is the one that the handler decided
    "liveness",  # what can go on goes on, without a stop
    "stop",  # nothing is taken after it
    "drain",  # at a stop all that was taken is handled and settled, or given back; nothing is lost
    "end",  # the form ends
    "one waiter",  # one task waits for the stream
]


class Rejected(AssertionError):
    """A promise was broken.

    Attributes:
        check: Which.
        is_final: Whether it stays broken; else something has not happened yet.
    """

    def __init__(self, check: Check, what: str, *, final: bool = True) -> None:
        super().__init__(f"{check}: {what}")
        self.check = check
        self.is_final = final


class Event(NamedTuple):
    """`take`, `begin`, `end` (of a handler), `stop`, `cancel`, or how a delivery ended."""

    kind: str
    number: int = -1


class Watch:
    """Follows what a form does.

    Args:
        decided: What the handler has decided of each delivery, at its last run.
        bound: How many deliveries may be in hand.
        at_once: How many may be handled.
        group: The group of deliveries that keep their order, or none for the delivery by itself.
    """

    def __init__(
        self, decided: Mapping[int, Decided], *, bound: int, at_once: int, group: Callable[[int], object | None]
    ) -> None:
        self._decided = decided
        self._bound = bound
        self._at_once = at_once
        self._group = group
        self._unsettled: set[int] = set()
        self._running: set[int] = set()
        self._ended: set[int] = set()
        self._last: dict[object, int] = {}
        self._given_back: dict[object, int] = {}
        self._stopped = False
        self._leaving = False
        self.most = 0

    def see(self, event: Event) -> None:
        """Take note of the next event.

        Raises:
            Rejected: It should not have happened.
        """
        kind, index = event
        if kind == "stop":
            self._stopped = self._leaving = True
        elif kind == "cancel":
            self._leaving = True
        elif kind == "take":
            self._take(index)
        elif kind == "begin":
            self._begin(index)
        elif kind == "end":
            self._finish(index)
        else:
            self._end(index, kind)

    def over(self) -> None:
        """The form has ended."""
        if self._unsettled:
            raise Rejected("drain", f"{sorted(self._unsettled)} were taken and neither settled nor given back")

    def _take(self, index: int) -> None:
        if self._stopped:
            raise Rejected("stop", f"{index} was taken after the stop")

        self._unsettled.add(index)
        self.most = max(self.most, len(self._unsettled))
        if self.most > self._bound:
            raise Rejected("bound kept", f"{self.most} in hand, not {self._bound}")

    def _begin(self, index: int) -> None:
        if index in self._ended or index in self._running:
            raise Rejected("once", f"{index} was begun again")

        self._running.add(index)
        if len(self._running) > self._at_once:
            raise Rejected("bound kept", f"{sorted(self._running)} run at once, not {self._at_once}")

        self._check_order(index)

    def _check_order(self, index: int) -> None:
        group = self._group(index)
        if group is None:
            return

        last = self._last.get(group, index)
        if last > index or (last != index and last not in self._ended):
            raise Rejected(
                "order", f"{index} began after {last}, which has {'' if last in self._ended else 'not '}ended"
            )

        if self._given_back.get(group, index) < index:
            raise Rejected("order", f"{index} overtook {self._given_back[group]}, which was given back")

        self._last[group] = index

    def _finish(self, index: int) -> None:
        self._running.discard(index)
        if self._decided[index] == "fatal":
            self._leaving = True

    def _end(self, index: int, kind: str) -> None:
        if index in self._ended:
            raise Rejected("once", f"{index} has ended, and now this: {kind}")

        self._ended.add(index)
        self._unsettled.discard(index)
        if kind == "release":
            self._release(index)
            return

        if index not in self._decided or index in self._running:
            raise Rejected("handled first", f"{index} was settled ({kind}) before its handler had ended")

        if kind != self._decided[index]:
            raise Rejected("outcome", f"{index}: {kind}, and the handler has decided: {self._decided[index]}")

    def _release(self, index: int) -> None:
        self._running.discard(index)
        if not self._leaving:
            raise Rejected("drain", f"{index} was given back, and nobody stops")

        group = self._group(index)
        if group is not None:
            self._given_back[group] = min(index, self._given_back.get(group, index))
