"""Broken forms with threads."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from pystream._runtime import forms
from pystream._runtime.forms import _ring, threads
from pystream._runtime.forms._ring import Ring
from pystream._runtime.forms.threads import Threads
from pystream._runtime.intake import Intake
from pystream._runtime.starter import Start
from pystream.protocols import GAP, Delivery

from tests.core.model.fault import Fault, acknowledging_first

__all__ = ["THREAD_FAULTS"]


class LeavesAtTheStop(Ring):
    """The thread ends when its ring is closed, with what is in it."""

    __slots__ = ()

    def take(self) -> Delivery | None:
        return None if self.closed else super().take()

    async def wait(self) -> bool:
        return not self.closed and await super().wait() and not self.closed


class LosesItsItems(LeavesAtTheStop):
    """And does not give them back."""

    __slots__ = ()

    def _give_back(self) -> None:
        self._slots.clear()


class WakesNoThread(Ring):
    """Whoever fills a ring does not look whether its thread is parked."""

    __slots__ = ()

    def put(self, delivery: Delivery) -> None:
        self._parked = False
        super().put(delivery)


class ForgetsItIsParked(Ring):
    """A thread that goes to sleep does not say so, but for its first time."""

    __slots__ = ()

    async def wait(self) -> bool:
        if self._slots or self.closed:
            return await super().wait()

        await self._filled.wait()
        return True


class WakesNoFeederAtHalf(Ring):
    """A thread that has drained its ring to half does not look whether the feeder waits for any."""

    __slots__ = ()

    def take(self) -> Delivery | None:
        waits, self._bell.any_ring = self._bell.any_ring, False
        try:
            return super().take()
        finally:
            self._bell.any_ring = waits


class WakesNoFeederAtItsSlot(Ring):
    """A thread that has freed a slot does not look whether the feeder waits for it."""

    __slots__ = ()

    def take(self) -> Delivery | None:
        waits, self._bell.ring = self._bell.ring, None
        try:
            return super().take()
        finally:
            self._bell.ring = waits


class EndsQuietly(Ring):
    """The end of a thread does not wake the feeder that waits for its ring."""

    __slots__ = ()

    def end(self) -> None:
        self.ended = True
        self.hand = None
        self._give_back()


class KeepsWhatComesLate(Ring):
    """What is put on a ring whose thread has ended stays there."""

    __slots__ = ()

    def put(self, delivery: Delivery) -> None:
        if self.ended:
            self._slots.append(delivery)
        else:
            super().put(delivery)


class FreesItsSlotLate(Ring):
    """What the thread has in hand takes a slot of its ring."""

    __slots__ = ()

    @property
    def full(self) -> bool:
        return len(self._slots) + (self.hand is not None) >= _ring.SLOTS and not self.ended

    @property
    def has_room(self) -> bool:
        return not self.full and not self.ended


class TakesBeforeItPicks(Threads):
    """Takes a delivery while every ring is full, and then waits for one."""

    async def _wait_for_any(self, intake: Intake) -> None:
        delivery = intake.take()
        await super()._wait_for_any(intake)
        if delivery is not None and delivery is not GAP:
            self._rings[self._free() or 0].put(delivery)


class LeavesTheRingAtAStop(Threads):
    """A stop ends the wait for a ring, and what the wait was for is forgotten."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        self._intake = intake
        await super().run(intake, start)

    async def _wait_for(self, ring: Ring, delivery: Delivery) -> None:
        self._bell.ring = ring
        while ring.full:
            await self._bell.signal.wait()
            if not self._intake.open:
                ring.put = _forget  # type: ignore[method-assign]  # the fault
                break

        self._bell.ring = None


def _forget(delivery: Delivery) -> None:
    pass


class ForgetsItsHandWhenCancelled(Threads):
    """A cancelled wait for a ring does not give back what the wait was for."""

    async def _wait_for(self, ring: Ring, delivery: Delivery) -> None:
        self._bell.ring = ring
        while ring.full:
            await self._bell.signal.wait()

        self._bell.ring = None


class GoesToARandomThread(Threads):
    """The key does not choose the ring."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._chance = random.Random(1)

    def _ring_of(self, delivery: Delivery, free: int | None) -> Ring:
        return self._chance.choice(self._rings)


class LetsOthersOvertakeInARing(Threads):
    """A delivery that is left unsettled does not end its ring."""

    def gave_up(self, delivery: Delivery) -> None:
        pass


def _starting_threads(wrap: Callable[[Start[Any]], Start[Any]]) -> type[Threads]:
    """Threads that start their deliveries in another way."""

    class Wrapped(Threads):
        def __init__(self, *args: Any, compiled: Callable[[Any], Start[Any]], **kwargs: Any) -> None:
            super().__init__(*args, compiled=lambda side: wrap(compiled(side)), **kwargs)

    return Wrapped


def _with_rings(kind: type[Ring]) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(threads, "Ring", kind)


def _with_threads(kind: type[Threads]) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(forms, "Threads", kind)


def _with_number(name: str, value: int) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(_ring, name, value)


_THREADS, _BY_KEY = "threads=n", "threads=by_key(n)"

THREAD_FAULTS = {
    "a thread leaves with items in its ring": Fault(_THREADS, "drain", patch=_with_rings(LeavesAtTheStop)),
    "a thread leaves and loses its items": Fault(_BY_KEY, "drain", patch=_with_rings(LosesItsItems)),
    "no thread is woken": Fault(_THREADS, "liveness", patch=_with_rings(WakesNoThread)),
    "a thread parks without its flag": Fault(_BY_KEY, "liveness", patch=_with_rings(ForgetsItIsParked)),
    "no wake-up of the feeder at half": Fault(_THREADS, "bound reached", patch=_with_rings(WakesNoFeederAtHalf)),
    "no wake-up of the feeder at its slot": Fault(_BY_KEY, "bound reached", patch=_with_rings(WakesNoFeederAtItsSlot)),
    "a slot is free after the handler only": Fault(_BY_KEY, "bound reached", patch=_with_rings(FreesItsSlotLate)),
    "a ring has nine slots": Fault(_THREADS, "bound kept", patch=_with_number("SLOTS", 9)),
    "a ring has seven slots": Fault(_THREADS, "bound reached", patch=_with_number("SLOTS", 7)),
    "the feeder goes on at five of eight": Fault(_THREADS, "free worker", patch=_with_number("HALF", 5)),
    "the feeder goes on at three of eight": Fault(_THREADS, "bound reached", patch=_with_number("HALF", 3)),
    "polls before a ring has room": Fault(_THREADS, "bound kept", patch=_with_threads(TakesBeforeItPicks)),
    "leaves the ring at a stop": Fault(_BY_KEY, "drain", patch=_with_threads(LeavesTheRingAtAStop)),
    "the end of a ring wakes nobody": Fault(_BY_KEY, "drain", patch=_with_rings(EndsQuietly)),
    "an ended ring keeps what comes late": Fault(_BY_KEY, "drain", patch=_with_rings(KeepsWhatComesLate)),
    "a cancelled feeder forgets its hand": Fault(_BY_KEY, "drain", patch=_with_threads(ForgetsItsHandWhenCancelled)),
    "sends a key to a random thread": Fault(_BY_KEY, "order", patch=_with_threads(GoesToARandomThread)),
    "lets others overtake in a ring": Fault(_BY_KEY, "order", patch=_with_threads(LetsOthersOvertakeInARing)),
    "acknowledges before the handler on a thread": Fault(
        _THREADS, "handled first", patch=_with_threads(_starting_threads(acknowledging_first))
    ),
}
