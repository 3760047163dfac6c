"""What lies between the feeder on the app's loop and one dedicated thread: eight slots.

Either side sleeps only by this rule: raise the flag, look again, then sleep; and either looks
at the other's flag after it has added or taken something. So whichever comes first, one of
the two sees the other, and no wake-up is lost. The flags spare the rest: a wake-up of another
thread's loop costs more than all else here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pystream.protocols import Delivery
from pystream.signal import Signal

__all__ = ["HALF", "SLOTS", "Bell", "Ring"]

SLOTS: Final = 8
HALF: Final = 4
"""A feeder that waits for any ring is woken when one has drained to this; each wake-up then pays for four."""


class Bell:
    """Wakes the feeder, for what it waits for.

    Attributes:
        any_ring: Whether it waits until some ring has drained to half.
        ring: The one ring it waits for a slot of, or none.
        signal: Its wake-up.
    """

    __slots__ = ("any_ring", "ring", "signal")

    def __init__(self) -> None:
        self.any_ring = False
        self.ring: Ring | None = None
        self.signal = Signal()


class Ring:
    """The deliveries of one thread: the one in its hand, and up to eight that wait.

    The feeder calls `put` and `close`; the thread `take`, `wait` and `end`; the rest is anybody's.

    Attributes:
        hand: The delivery that the thread handles now, or none.
        closed: Whether the feeder will put nothing more.
        broken: Whether what follows the delivery in hand must not be handled.
        ended: Whether the thread takes nothing more.
        cancelled: Whether what the thread handles is being cancelled.
    """

    __slots__ = ("_bell", "_filled", "_parked", "_slots", "broken", "cancelled", "closed", "ended", "hand")

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._slots: deque[Delivery] = deque()
        self._filled = Signal()
        self._parked = False
        self.hand: Delivery | None = None
        self.closed = False
        self.broken = False
        self.ended = False
        self.cancelled = False

    @property
    def full(self) -> bool:
        """Whether there is no slot; never of a ring that has ended, which gives back what is put there."""
        return len(self._slots) >= SLOTS

    @property
    def has_room(self) -> bool:
        """Whether a delivery put here will be handled: there is a slot, and a thread."""
        return len(self._slots) < SLOTS and not self.ended

    @property
    def drained(self) -> bool:
        """Whether it is at most half full, and there is a thread."""
        return len(self._slots) <= HALF and not self.ended

    def put(self, delivery: Delivery) -> None:
        """Add a delivery, for which there is a slot; it is given back if nobody takes any more."""
        self._slots.append(delivery)
        if self._parked:
            self._parked = False
            self._filled.wake_from_thread()

        if self.ended:
            self._give_back()

    def close(self) -> None:
        """Put nothing more. Synchronous, idempotent."""
        self.closed = True
        self._filled.wake_from_thread()

    def take(self) -> Delivery | None:
        """The next delivery, which is then in hand; none if there is none now. Its slot is free at once."""
        slots, bell = self._slots, self._bell
        try:
            self.hand = delivery = slots.popleft()
        except IndexError:
            return None

        if bell.any_ring:
            if len(slots) <= HALF:
                bell.signal.wake_from_thread()
        elif bell.ring is self:
            bell.signal.wake_from_thread()

        return delivery

    async def wait(self) -> bool:
        """Return when a `take` may succeed; false if none ever will.

        Cancel safety: cancelling it changes nothing.
        """
        self._parked = True
        if not self._slots:
            if self.closed:
                self._parked = False
                return bool(self._slots)  # the last one may have been put between the two looks

            await self._filled.wait()

        self._parked = False
        return True

    def end(self) -> None:
        """Take nothing more, and give back what was not handled, the one in hand included. Idempotent."""
        self.ended = True
        hand, self.hand = self.hand, None
        if hand is not None:
            hand.release()  # without effect if it was settled, or given back already

        self._give_back()
        self._bell.signal.wake_from_thread()

    def _give_back(self) -> None:
        while True:
            try:
                delivery = self._slots.popleft()  # of the two sides that may be here, one gets it
            except IndexError:
                return

            delivery.release()
