"""A mounted handler while its service runs: what the pipeline and its helpers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pystream._hooks import Hook
from pystream._loops import Loop
from pystream._runtime.intake import Intake
from pystream._runtime.registration import Registered
from pystream._runtime.reporting import Reporter
from pystream._runtime.tracker import Tracker
from pystream.parameters import Surroundings
from pystream.protocols import Clock, Delivery, Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMount:
    """One subscription of a running service.

    Attributes:
        registered: What was declared.
        surroundings: What getters are compiled for, with the open state and the connected broker.
        intake: Where the form takes its deliveries from.
        publisher: Sends the replies.
        hooks: The frozen `post_settle` hooks.
        tracker: Runs what comes after a settlement.
        clock: The time of delays and durations.
        loop: The loop the deliveries are handled on.
        report: The subscription's log.
        gave_up: Tells the form that a delivery was left unsettled.
        fail: Stops the service: the step, and what was raised.
    """

    registered: Registered
    surroundings: Surroundings
    intake: Intake
    publisher: Publisher
    hooks: tuple[Hook, ...]
    tracker: Tracker
    clock: Clock
    loop: Loop
    report: Reporter
    gave_up: Callable[[Delivery], None]
    fail: Callable[[str, BaseException], None]

    def leave_unsettled(self, delivery: Delivery) -> None:
        """Give a delivery back without a settlement; only on the way out."""
        delivery.release()
        self.gave_up(delivery)
