"""`Driver`: the stream of one subscription, between its consumer and the runtime.

The queue has 16 places, or a sixteenth of the client's where that is more. When it is empty
it is filled by one pull, which takes what waits in the client and otherwise leaves the
consumer armed; `wait` sleeps until it wakes. There is no task: settlements are direct calls
on the owner's loop, and what is timed goes by the clock.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING

from pystream.errors import SubscriptionEnded
from pystream.protocols import Clock
from pystream.signal import Signal

from pystream_pulsar._driver.session import Session
from pystream_pulsar._home import Home
from pystream_pulsar.transport import ConsumerSpec, Transport, TransportConsumer

if TYPE_CHECKING:
    from pystream_pulsar.message import PulsarMessage
    from pystream_pulsar.subscription import PulsarSubscription

__all__ = ["Driver", "open_driver"]

_log = logging.getLogger("pystream_pulsar")

LEAST_PLACES = 16
MOST_PLACES = 64
"""A pull costs as much as one or two messages: 64 share that well, and siblings lose little to 64."""

CLOSE_BOUND = 8.0
"""Seconds that a close waits for what is in a handler's hands."""


async def open_driver(transport: Transport, source: PulsarSubscription, spec: ConsumerSpec, clock: Clock) -> Driver:
    """Open a consumer and the driver that owns it. On the owner's loop.

    Raises:
        SubscribeError: The consumer was refused.

    Cancel safety: a consumer that opens later is closed.
    """
    home, signal = Home(), Signal()

    def wake() -> None:
        if get_ident() == home.thread:
            signal.wake()
        else:
            signal.wake_from_thread()

    consumer = await transport.subscribe(spec, wake)
    return Driver(consumer, source, home, signal, clock, places=_places(spec.receiver_queue_size))


def _places(receiver_queue_size: int) -> int:
    """How many messages the queue holds: never much beside what the client reads ahead itself."""
    return min(max(LEAST_PLACES, receiver_queue_size // 16), MOST_PLACES)


class Driver:
    """Implements `pystream.protocols.Subscriber` over a transport's consumer.

    Args:
        consumer: What it pulls from.
        source: The subscription.
        home: The owner's loop.
        signal: Woken by the consumer.
        clock: Keeps every time.
        places: How many messages its queue holds, 1 or more.
    """

    __slots__ = (
        "_armed",
        "_clock",
        "_consumer",
        "_ended",
        "_home",
        "_places",
        "_queue",
        "_session",
        "_signal",
        "_source",
    )

    def __init__(
        self,
        consumer: TransportConsumer,
        source: PulsarSubscription,
        home: Home,
        signal: Signal,
        clock: Clock,
        *,
        places: int,
    ) -> None:
        self._consumer = consumer
        self._source = source
        self._home = home
        self._signal = signal
        self._clock = clock
        self._places = places
        self._session = Session(consumer, source, home, clock)
        self._queue: deque[PulsarMessage] = deque()
        self._armed = False
        self._ended = False

    def take(self) -> PulsarMessage | None:
        """The next message, or none when a wait is due."""
        queue = self._queue
        if queue or self._fill():
            return queue.popleft()

        return None

    async def wait(self) -> None:
        """Return when a take may succeed.

        Raises:
            SubscriptionEnded: The subscription was closed, or nothing will come any more.
            PyStreamError: The consumer has failed.

        Cancel safety: it holds nothing.
        """
        self._check_alive()
        if self._queue or not self._armed:
            return

        await self._signal.wait()
        self._armed = False
        self._check_alive()

    def interrupt(self) -> None:
        """End the present wait, or the next one."""
        self._signal.wake()

    @property
    def delayed(self) -> int:
        """How many messages are held for a delay."""
        return self._session.delayed

    @property
    def late_failures(self) -> int:
        """How many settlements failed after they were accepted from another thread."""
        return self._session.late_failures

    async def close(self) -> None:
        """Stop taking, serve settlements until nothing is outstanding or the bound is spent, close the consumer.

        Cancel safety: a cancelled close leaves the subscriber closed; its consumer is closed
        with the connection at the latest.
        """
        if self._ended:
            return

        self._ended = True
        self._signal.wake()
        self._home.serve()
        try:
            await self._settled_or_late()
        finally:
            self._home.serve()
            awaited = self._session.end()

        if awaited:
            _log.warning(
                "%s was closed with %d messages that were neither settled nor released within %g s; "
                "the server delivers them again",
                self._source.name,
                awaited,
                CLOSE_BOUND,
            )

        await self._consumer.close()

    async def _settled_or_late(self) -> None:
        settled = Signal()
        queued = list(self._queue)
        self._queue.clear()
        self._session.begin_close(queued, settled.wake)
        timer = self._clock.call_later(CLOSE_BOUND, settled.wake)
        try:
            await settled.wait()
        finally:
            timer.cancel()

    def _fill(self) -> bool:
        """Pull until something is deliverable or the consumer is armed."""
        if self._ended:
            return False

        home, queue, places = self._home, self._queue, self._places
        while True:
            if home.calls:
                home.serve()

            raws = self._consumer.pull(places)
            if raws:
                self._session.arrive(raws, queue.append)

            if queue:
                self._armed = False
                return True

            if len(raws) < places:
                self._armed = True
                return False

    def _check_alive(self) -> None:
        if self._ended:
            raise SubscriptionEnded(f"subscription {self._source.subscription_name!r} to {self._source.name} is closed")

        failure = self._consumer.failure
        if failure is not None:
            raise failure
