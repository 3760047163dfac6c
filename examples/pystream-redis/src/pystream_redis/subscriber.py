"""`RedisSubscriber`: the stream of deliveries of one consumer."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

import anyio
from pystream.background import Background
from pystream.errors import PyStreamError, SubscriptionEnded
from pystream.memory import RedeliverySchedule
from pystream.protocols import Clock, Mounting
from pystream.signal import LoopCall, Signal

from pystream_redis._group import Entry, Group
from pystream_redis._hands import Hands
from pystream_redis._keeper import Keeper
from pystream_redis._link import Answer, Link
from pystream_redis._pipe import Pipe
from pystream_redis._reader import Reader
from pystream_redis._settlements import Settlements
from pystream_redis.delivery import RedisDelivery
from pystream_redis.stream import RedisStream

__all__ = ["RedisSubscriber"]

_log = logging.getLogger("pystream_redis")

_HANDS_BOUND = 5.0
"""Seconds that a close waits for what is in the service's hands."""

_SERVER_BOUND = 3.0
"""Seconds that a close then takes for its last words to the server."""

_MOST_HELD = 1000
"""How many entries may wait for another try before no new ones are read."""


class RedisSubscriber:
    """A stream of deliveries; made by `ConnectedRedisBroker.subscribe`.

    Entries that came back, of this consumer or of dead ones, take turns with new ones. Three
    tasks work for it: the connection's writer, a reader, and a keeper.

    Args:
        source: Stream, group and bounds.
        mounting: Says how much the handler holds.
        pipe: The connection's outgoing pipeline.
        link: A connection for the reader alone.
        consumer: The consumer's name, used by nobody else.
        clock: Times delays and the keeper.

    Attributes:
        source: Stream, group and bounds.
    """

    def __init__(
        self, source: RedisStream, mounting: Mounting, *, pipe: Pipe, link: Link, consumer: str, clock: Clock
    ) -> None:
        self.source: RedisStream = source
        self._name = mounting.name
        self._ahead = source.read_ahead or max(16, 2 * mounting.concurrency)
        self._pipe = pipe
        self._link = link
        self._new: deque[RedisDelivery] = deque()
        self._returned: deque[RedisDelivery] = deque()
        self._new_first = True
        # Every entry that is pending here, and how often it counts as handed out if it goes back.
        self._mine: dict[bytes, int] = {}
        self._hands = Hands(mounting.name)
        self._schedule: RedeliverySchedule[RedisDelivery] = RedeliverySchedule(clock, self._try_again)
        self._held_elsewhere: deque[tuple[RedisDelivery, float]] = deque()
        self._thread = threading.get_ident()
        self._loop_call = LoopCall(self._hold_those)
        self._signal = Signal()
        self._failure: PyStreamError | None = None
        self._closing = False
        self._done: anyio.Event | None = None
        self._group = Group(pipe, source, consumer)
        self._settlements = Settlements(pipe, clock)
        self._reader = Reader(link, self._group, room=self._room, arrived=self._arrived, failed=self._failed)
        self._keeper = Keeper(
            self._group,
            clock,
            source.claim_every,
            mine=self._mine.keys(),
            room=self._room_for_claims,
            claimed=self._claimed,
        )
        self._background = Background()

    async def open(self) -> None:
        """Make the group, claim what was left behind, begin to read.

        Raises:
            Refusal: The server will not.
            BrokenLink: It has not answered.

        Cancel safety: a cancelled open leaves nothing running.
        """
        await self._group.create()
        await self._keeper.claim()
        self._background.start(self._reader.run, name=f"pystream-redis reader of {self._name}")
        self._background.start(self._keeper.run, name=f"pystream-redis keeper of {self._name}")

    def take(self) -> RedisDelivery | None:
        """The next delivery, or none when a wait is due. Synchronous, never raises."""
        queue = self._next_queue()
        if self._closing or not queue:
            return None

        delivery = queue.popleft()
        self._hands.add(delivery)
        if self._room() > 0:
            self._reader.resume()

        if self._keeper.more and not self._returned:
            self._keeper.look()

        return delivery

    async def wait(self) -> None:
        """Return when a `take` may succeed; early returns are allowed.

        Raises:
            SubscriptionEnded: The subscriber was closed, or stream or group were removed.
            PyStreamError: The server cannot be reached; another wait tries again.

        Cancel safety: a cancelled wait loses nothing; it holds nothing.
        """
        if not self._closing and (self._new or self._returned):
            return

        self._raise_failure()
        await self._signal.wait()
        self._raise_failure()

    def interrupt(self) -> None:
        """End the present `wait`, or the next one if there is none. Synchronous."""
        self._signal.wake()

    @property
    def delayed(self) -> int:
        """How many deliveries are held back for a delay, 0 or more."""
        return len(self._schedule)

    @property
    def late_failures(self) -> int:
        """How many settlements were accepted and could not be made, 0 or more."""
        return self._settlements.failed

    async def close(self) -> None:
        """End the stream, send every settlement, give back the rest to the group.

        It waits 5 seconds at most for what is in the service's hands, and 3 for the server.
        What is given back is there at once for the next subscriber, and within `claim_every`
        for those that are open; its count does not grow by it. Idempotent.

        Cancel safety: a cancelled close leaves the subscriber closed; what was not given back
        comes back after `claim_after`.
        """
        if self._done is not None:
            await self._done.wait()
            return

        self._done = anyio.Event()
        self._closing = True
        self._schedule.clear()
        self._signal.wake()
        try:
            with anyio.move_on_after(_HANDS_BOUND):
                await self._hands.emptied()

            self._refuse_settlements()
            with anyio.move_on_after(_SERVER_BOUND) as bound:
                await self._give_back()

            if bound.cancelled_caught:
                _log.warning("%s: the server took too long; what was unsettled comes back later", self._name)
        finally:
            self._refuse_settlements()
            self._done.set()
            await self._background.close()
            await self._link.close()

    def acknowledge(self, delivery: RedisDelivery) -> None:
        """Have an entry done. From any thread.

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back.
        """
        entry = delivery.entry

        def send() -> None:
            command = self._group.acknowledging(entry)
            # Until the server has answered it is pending here: claimed again it would be handled twice.
            self._settlements.send(delivery, command, lambda _: self._mine.pop(entry, None))

        self._hands.settle(delivery, send)

    def requeue(self, delivery: RedisDelivery) -> None:
        """Have an entry handed out again at once. From any thread; raises as `acknowledge` does."""

        def send() -> None:
            self._mine[delivery.entry] = delivery.delivery_count
            self._try_again(delivery)

        self._hands.settle(delivery, send)

    def hold(self, delivery: RedisDelivery, delay: float) -> None:
        """Have an entry handed out again in `delay` seconds. From any thread; raises as `acknowledge` does."""

        def note() -> None:
            self._mine[delivery.entry] = delivery.delivery_count

        self._hands.settle(delivery, note)
        self._held_elsewhere.append((delivery, delay))
        if threading.get_ident() == self._thread:
            self._hold_those()
        else:
            self._loop_call.request()

    def release(self, delivery: RedisDelivery) -> None:
        """Take a delivery out of the service's hands without settling it. From any thread."""
        self._hands.release(delivery)

    def _hold_those(self) -> None:
        while self._held_elsewhere:
            delivery, delay = self._held_elsewhere.popleft()
            if not self._closing:
                self._schedule.add(delay, delivery)

    def _try_again(self, delivery: RedisDelivery) -> None:
        tries = delivery.delivery_count + 1
        command = self._group.claiming(delivery.entry, tries)
        self._settlements.send(delivery, command, lambda answer: self._tried_again(delivery, tries, answer))

    def _tried_again(self, delivery: RedisDelivery, tries: int, answer: Answer) -> None:
        if answer:
            self._returned.append(RedisDelivery(self, delivery.entry, delivery.fields, tries))
            self._signal.wake()
            return

        self._mine.pop(delivery.entry, None)
        _log.warning("%s is not handed out again: it was trimmed away, or acknowledged by another", delivery.id)

    def _next_queue(self) -> deque[RedisDelivery]:
        first, second = (self._new, self._returned) if self._new_first else (self._returned, self._new)
        queue = first or second
        self._new_first = queue is not self._new
        return queue

    def _room(self) -> int:
        held = len(self._returned) + len(self._schedule)
        if self._closing or held >= _MOST_HELD or 2 * len(self._new) > self._ahead:
            return 0

        return self._ahead - len(self._new)

    def _room_for_claims(self) -> int:
        return 0 if self._closing else self._ahead - len(self._returned)

    def _arrived(self, entries: Sequence[Entry]) -> None:
        self._failure = None
        self._add(self._new, entries)

    def _claimed(self, entries: Sequence[Entry]) -> None:
        self._add(self._returned, entries)

    def _add(self, queue: deque[RedisDelivery], entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._mine[entry.id] = entry.tries - 1
            queue.append(RedisDelivery(self, entry.id, entry.fields, entry.tries))

        if entries:
            self._signal.wake()

    def _failed(self, failure: PyStreamError) -> None:
        self._failure = failure
        self._signal.wake()

    def _raise_failure(self) -> None:
        if self._closing:
            raise SubscriptionEnded(f"subscription {self._name!r} was closed; nothing will come any more")

        failure = self._failure
        if failure is None:
            return

        if not isinstance(failure, SubscriptionEnded):
            self._failure = None
            self._reader.resume()

        raise type(failure)(f"subscription {self._name!r} to {self.source.stream!r}: {failure}") from failure

    def _refuse_settlements(self) -> None:
        left = self._hands.close()
        if left:
            _log.warning(
                "%s was closed with %d deliveries that were neither settled nor released within %g s; they come back",
                self._name,
                left,
                _HANDS_BOUND,
            )

    async def _give_back(self) -> None:
        try:
            await self._reader.stop(self._pipe)
            await self._background.close()
            await self._settlements.flush()
            if isinstance(self._failure, SubscriptionEnded):
                return

            await self._group.park(self._mine)
            await self._group.remove()
        except PyStreamError as error:
            _log.warning("%s: not everything was given back at once: %s", self._name, error)
