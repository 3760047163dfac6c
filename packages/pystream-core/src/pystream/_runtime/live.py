"""A mounted handler while its service runs: what the pipeline and its helpers share."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import dataclass

from pystream._hooks import Hook
from pystream._loops import Loop
from pystream._runtime.pauses import Pauses
from pystream._runtime.registration import Registered
from pystream._runtime.reporting import Reporter
from pystream._runtime.tracker import Tracker
from pystream.parameters import Surroundings
from pystream.protocols import Clock, Delivery, Publisher


@dataclass(slots=True)
class Streak:
    """How many deliveries in a row could not be read, over all loops of a subscription."""

    count: int = 0


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
        stop_taking: Ends the taking of deliveries at once.
        gave_up: Tells the form that a delivery was left unsettled.
        fail: Stops the service: the step, and what was raised.
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
    stop_taking: Callable[[], None]
    gave_up: Callable[[Delivery], None]
    fail: Callable[[str, BaseException], None]

    def leave_unsettled(self, delivery: Delivery) -> None:
        """Give a delivery back without a settlement; only on the way out."""
        delivery.release()
        self.gave_up(delivery)
