"""`MemorySubscriber`: the stream of deliveries of one subscription."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio

from pystream.errors import BrokerClosed, PyStreamError, SettlementError, SubscriptionEnded
from pystream.memory.delivery import MemoryDelivery
from pystream.memory.schedule import RedeliverySchedule
from pystream.signal import Signal

if TYPE_CHECKING:
    from pystream.memory._store import Store, Subscription
    from pystream.protocols import Clock

__all__ = ["MemorySubscriber"]

_CLOSE_BOUND = 1.0
"""How long a close waits for what is in the service's hands, in seconds of real time."""

_TRIM_EVERY = 64
"""After how many acknowledged messages a busy subscription looks whether its log can be trimmed."""


class MemorySubscriber:
    """A stream of deliveries; made by `ConnectedMemoryBroker.subscribe`.

    What is requeued, or held back until now, takes turns with what was not handed out yet,
    beginning with the latter: neither keeps the other waiting. What is given back at the
    close is handed out first, in the order of the log, when the subscription is opened again.
    """

    __slots__ = (
        "_acknowledge",
        "_closed",
        "_closing",
        "_counts",
        "_cursor",
        "_done",
        "_due",
        "_emptied",
        "_given_back",
        "_in_hand",
        "_log",
        "_mail",
        "_name",
        "_next",
        "_read",
        "_schedule",
        "_signal",
        "_store",
        "_subscription",
        "_trim_at",
        "_unseen_first",
        "thread",
    )

    def __init__(self, name: str, store: Store, subscription: Subscription, clock: Clock) -> None:
        self.thread: int = store.thread
        self._name = name
        self._store = store
        self._mail = store.mail
        self._subscription = subscription
        self._cursor = subscription.cursor
        self._counts = subscription.counts
        self._log = subscription.topic.log
        # Bound once: three calls of each message.
        self._next = self._cursor.next
        self._acknowledge = self._cursor.acknowledge
        self._read = self._log.read
        self._signal = Signal()
        self._due: deque[int] = deque()
        self._unseen_first = True
        self._schedule: RedeliverySchedule[int] = RedeliverySchedule(clock, self._come_due)
        self._trim_at = self._cursor.mark + _TRIM_EVERY
        # Membership decides who settles: removing is atomic, so of two threads one wins.
        self._in_hand: set[MemoryDelivery] = set()
        self._given_back: frozenset[MemoryDelivery] = frozenset()
        self._emptied = Signal()
        self._closing = False
        self._closed = False
        self._done: anyio.Event | None = None
        subscription.taken = True
        subscription.topic.listen(self._signal)

    def take(self) -> MemoryDelivery | None:
        """The next delivery, or none when a wait is due. Synchronous, never raises."""
        if self._mail:
            self._store.read_mail()

        offset = self._in_turn() if self._due else self._next(self._log.end)
        if offset is None or self._closing:
            self._trim()
            return None

        count = self._counts.get(offset, 1) if self._counts else 1
        delivery = MemoryDelivery()
        delivery._stream = self
        delivery._message = message = self._read(offset)
        delivery.offset = offset
        delivery.payload = message.payload
        delivery.delivery_count = count
        self._in_hand.add(delivery)
        return delivery

    async def wait(self) -> None:
        """Return when a `take` may succeed; early returns are allowed.

        Raises:
            SubscriptionEnded: The subscriber was closed.

        Cancel safety: a cancelled wait loses nothing; it holds nothing.
        """
        if not self._closing and (self._mail or self._due or self._cursor.position < self._log.end):
            return

        if not self._closing:
            await self._signal.wait()

        if self._closing:
            raise SubscriptionEnded(f"subscription {self._name!r} was closed; nothing will come any more")

    def interrupt(self) -> None:
        """End the present `wait`, or the next one if there is none. Synchronous."""
        self._signal.wake()

    @property
    def ready(self) -> bool:
        """Whether a `take` may succeed now: something is unread, came back, or was left by another thread."""
        return bool(self._due) or self._cursor.position < self._log.end or bool(self._mail)

    @property
    def delayed(self) -> int:
        """How many deliveries are held back for a delay, 0 or more."""
        if self._mail:
            self._store.read_mail()

        return len(self._schedule)

    async def close(self) -> None:
        """End the stream; give back what was not settled.

        Settlements keep working until everything in the service's hands is settled or
        released, for one second at most. What is given back keeps its count; what was held
        for a delay comes back at once when the subscription is opened again. Idempotent.

        Cancel safety: a cancelled close has given everything back.
        """
        if self._closed:
            return

        if self._done is not None:
            await self._done.wait()
            return

        self._done = anyio.Event()
        self._closing = True
        self._signal.wake()
        try:
            with anyio.move_on_after(_CLOSE_BOUND):
                while self._in_hand:
                    await self._emptied.wait()
        finally:
            self.give_back()
            self._schedule.clear()
            self._done.set()

    def give_back(self) -> None:
        """Return everything unsettled to the subscription, and refuse what comes later.

        Synchronous, idempotent; touches neither the clock nor a loop, so that it also
        serves for a stream whose loop is gone. Mail that is still there is for the
        subscription, and read before it is opened again.
        """
        if self._closed:
            return

        with self._store.lock:
            self._closed = True
            self._given_back = frozenset(self._in_hand)
            self._in_hand.clear()

        self._closing = True
        self._subscription.topic.unlisten(self._signal)
        self._due.clear()
        self._cursor.rewind()
        self._subscription.topic.trim()
        self._subscription.taken = False

    def claim(self, delivery: MemoryDelivery) -> None:
        """Take a delivery out of the service's hands, to settle it.

        Raises:
            SettlementError: It is not there any more: `BrokerClosed` after a close.
        """
        try:
            self._in_hand.remove(delivery)
        except KeyError:
            raise self._refusal(delivery) from None

        if self._closing:
            self._emptied.wake()

    def claim_done(self, delivery: MemoryDelivery) -> None:
        """`claim` and `acknowledge` in one call: what nearly every delivery ends with."""
        try:
            self._in_hand.remove(delivery)
        except KeyError:
            raise self._refusal(delivery) from None

        if self._closing:
            self._emptied.wake()

        if self._counts:
            self._counts.pop(delivery.offset, None)

        if self._acknowledge(delivery.offset) >= self._trim_at:
            self._trim()

    def leave(self, delivery: MemoryDelivery, settlement: Callable[[int], object]) -> None:
        """Claim a delivery on another thread than the owner's, and leave its settlement as mail."""
        with self._store.lock:
            try:
                self._in_hand.remove(delivery)
            except KeyError:
                raise self._refusal(delivery) from None

            self._mail.append(partial(settlement, delivery.offset))

        self._signal.wake_from_thread()
        if self._closing:
            self._emptied.wake_from_thread()

    def release(self, delivery: MemoryDelivery) -> None:
        """Take a delivery out of the service's hands without settling it. From any thread."""
        self._in_hand.discard(delivery)
        if self._closing:
            self._emptied.wake_from_thread()

    def acknowledge(self, offset: int) -> None:
        """Have an offset done. On the owner's thread, like the next two."""
        self._counts.pop(offset, None)
        if self._acknowledge(offset) >= self._trim_at:
            self._trim()

    def requeue(self, offset: int) -> None:
        """Have an offset handed out again at once."""
        self._count_again(offset)
        self._come_due(offset)

    def hold(self, offset: int, delay: float) -> None:
        """Have an offset handed out again in `delay` seconds."""
        self._count_again(offset)
        if not self._closed:
            self._schedule.add(delay, offset)

    def _count_again(self, offset: int) -> None:
        self._counts[offset] = self._counts.get(offset, 1) + 1

    def _come_due(self, offset: int) -> None:
        self._due.append(offset)
        self._signal.wake()

    def _in_turn(self) -> int:
        if self._unseen_first:
            offset = self._cursor.next(self._log.end)
            if offset is not None:
                self._unseen_first = False
                return offset

        self._unseen_first = True
        return self._due.popleft()

    def _trim(self) -> None:
        self._subscription.topic.trim()
        self._trim_at = self._cursor.mark + _TRIM_EVERY

    def _refusal(self, delivery: MemoryDelivery) -> PyStreamError:
        if delivery in self._given_back:
            return BrokerClosed(
                f"{delivery.id} was given back when subscription {self._name!r} closed; it comes back at the next start"
            )

        return SettlementError(f"{delivery.id} was settled or released before; a delivery is settled once")
