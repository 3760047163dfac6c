"""A mounted handler while its service runs: what the pipeline and its helpers share."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock

from pystream._hooks import Hook
from pystream._loops import Loop
from pystream._runtime.dedicated import ThreadSide
from pystream._runtime.hogs import Hogs
from pystream._runtime.holding import Delays
from pystream._runtime.pauses import Pauses
from pystream._runtime.plain import on_this_thread
from pystream._runtime.registration import Registered
from pystream._runtime.reporting import Reporter
from pystream._runtime.tracker import Tracker
from pystream.parameters import Surroundings
from pystream.protocols import Clock, Delivery, Publisher


@dataclass(slots=True)
class Streak:
    """How many deliveries in a row could not be read, over all loops of a subscription.

    Its methods may be called on any thread.
    """

    count: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self) -> int:
        """One more; answers how many there are now."""
        with self._lock:
            self.count += 1
            return self.count

    def reset(self) -> None:
        """One could be read."""
        with self._lock:
            self.count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMount:
    """One subscription of a running service, on one loop that handles its deliveries.

    What belongs to that loop is `tracker`, `clock`, `loop` and `pauses`; everything else is
    shared by all loops of the subscription.

    Attributes:
        registered: What was declared.
        surroundings: What getters are compiled for, with the open state and the connected broker.
        base: The application's context variables; each delivery gets a copy.
        publisher: Sends replies, copies and dead letters, through the publish layers.
        hooks: The frozen `post_settle` hooks.
        tracker: Runs what comes after a settlement.
        clock: The time of delays and durations.
        loop: The loop the deliveries are handled on.
        pauses: The sleeps between runs in place.
        report: The subscription's log.
        streak: The deliveries in a row that could not be read.
        delays: The bound of what is held for a delay.
        stop_taking: Ends the taking of deliveries at once.
        cancelled: Whether the stop cancels what is in hand.
        gave_up: Tells the form that a delivery was left unsettled.
        fail: Stops the service: the step, and what was raised.
        hogs: Samples how long the handler holds the app's loop; none on a loop that nothing else waits for.
    """

    registered: Registered
    surroundings: Surroundings
    base: contextvars.Context
    publisher: Publisher
    hooks: tuple[Hook, ...]
    tracker: Tracker
    clock: Clock
    loop: Loop
    pauses: Pauses
    report: Reporter
    streak: Streak
    delays: Delays
    stop_taking: Callable[[], None]
    cancelled: Callable[[], bool]
    gave_up: Callable[[Delivery], None]
    fail: Callable[[str, BaseException], None]
    hogs: Hogs | None = None

    def on(self, side: ThreadSide) -> LiveMount:
        """The same on a dedicated thread; what belongs to this loop is posted to it."""
        home, stop_taking, fail = self.loop, self.stop_taking, self.fail

        def post_stop() -> None:
            home.post(stop_taking)

        def post_failure(step: str, error: BaseException) -> None:
            home.post(partial(fail, step, error))

        registered = self.registered
        if not registered.signature.is_async:
            registered = replace(registered, handler=on_this_thread(registered.handler))

        return replace(
            self,
            registered=registered,
            tracker=side.tracker,
            clock=side.clock,
            loop=side.loop,
            pauses=side.pauses,
            stop_taking=post_stop,
            fail=post_failure,
            hogs=None,
        )

    def leave_unsettled(self, delivery: Delivery) -> None:
        """Give a delivery back without a settlement; only on the way out."""
        delivery.release()
        self.gave_up(delivery)
