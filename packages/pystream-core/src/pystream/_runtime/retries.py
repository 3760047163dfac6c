"""The table of retries: what is done with a delivery, decided without touching it.

Three facts of a delivery decide, besides the cap and the declared dead letter: who runs it
again, whether the broker counts it, and whether it can be held for a delay by the broker. A
capped delivery always goes a way on which its count survives: the broker's requeue where the
broker counts, else a copy whose header counts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from pystream.errors import RegistrationError
from pystream.failures import FailurePolicy
from pystream.outcomes import Outcome
from pystream.protocols import SubscriptionSource

LEAST_PAUSE: Final = 0.1
"""Seconds between two runs in place: what Pulsar takes for a redelivery; no hot loop."""


class Step(enum.Enum):
    """What is done with a delivery."""

    ACKNOWLEDGE = enum.auto()
    REJECT = enum.auto()
    REQUEUE = enum.auto()
    """The broker hands it out again at once."""
    DELAY = enum.auto()
    """The broker or the plugin hands it out again after a delay."""
    HOLD = enum.auto()
    """A timer of the runtime keeps it, unsettled, for a delay; then another step follows."""
    COPY = enum.auto()
    """A copy is published, its count raised; then it is acknowledged."""
    BURY = enum.auto()
    """It is published as a dead letter; then it is acknowledged."""
    RUN_AGAIN = enum.auto()
    """The handling task waits, and runs it again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with one delivery.

    Attributes:
        step: What is done first.
        outcome: What hooks and continuations are told.
        delay: Seconds, for a step that has a delay.
        then: What follows a `HOLD`.
        is_spent: Whether it is rejected because no attempt is left.
    """

    step: Step
    outcome: Outcome
    delay: float = 0.0
    then: Step = Step.REQUEUE
    is_spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The facts of one delivery.

    Attributes:
        attempt: Which attempt this is, from 1, runs in place included.
        in_place: Whether the handling task runs it again, and not the broker.
        counts: Whether the broker counts how often it was handed out.
        can_delay: Whether it has the capability `RetryAfter`.
    """

    attempt: int
    in_place: bool
    counts: bool
    can_delay: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """The table of one mount.

    Attributes:
        max_attempts: How often the handler sees a delivery, the first time included, or none for no cap.
        has_dead_letter: Whether the mount declares where spent deliveries go.
    """

    max_attempts: int | None
    has_dead_letter: bool

    def plan(self, outcome: Outcome, at: Situation) -> Plan:
        """What an outcome does. A `dead_letter` is for mounts that declare where to."""
        if outcome.kind == "ack":
            return Plan(Step.ACKNOWLEDGE, outcome)

        if outcome.kind == "drop":
            return Plan(Step.REJECT, outcome)

        if outcome.kind == "dead_letter":
            return Plan(Step.BURY, outcome)

        return self._spent(outcome, at) if self._is_spent(at) else self._again(outcome, at)

    def given_back(self, outcome: Outcome, at: Situation, delay: float) -> Plan:
        """What is done when a message could not be published: the broker hands the original out again."""
        retried = replace(outcome, kind="retry", delay=delay, reason=None)
        return Plan(Step.DELAY if at.can_delay else Step.HOLD, retried, delay)

    def instead(self, plan: Plan, at: Situation) -> Plan | None:
        """What is done in place of a settlement that the broker does not have; none if nothing can be."""
        if plan.step is Step.DELAY:
            return Plan(Step.HOLD, plan.outcome, plan.delay, self._after_the_hold(at))

        return Plan(Step.COPY, plan.outcome) if plan.step is Step.REQUEUE else None

    def _is_spent(self, at: Situation) -> bool:
        return self.max_attempts is not None and at.attempt >= self.max_attempts

    def _spent(self, outcome: Outcome, at: Situation) -> Plan:
        if not self.has_dead_letter:
            return Plan(Step.REJECT, replace(outcome, kind="drop", delay=None), is_spent=True)

        reason = f"given up at attempt {at.attempt} (max_attempts={self.max_attempts})"
        return Plan(Step.BURY, replace(outcome, kind="dead_letter", delay=None, reason=reason))

    def _again(self, outcome: Outcome, at: Situation) -> Plan:
        if at.in_place:
            return Plan(Step.RUN_AGAIN, outcome, max(outcome.delay or 0.0, LEAST_PAUSE))

        is_count_safe = at.counts or self.max_attempts is None
        if outcome.delay is None:
            return Plan(Step.REQUEUE if is_count_safe else Step.COPY, outcome)

        if at.can_delay and is_count_safe:
            return Plan(Step.DELAY, outcome, outcome.delay)

        return Plan(Step.HOLD, outcome, outcome.delay, self._after_the_hold(at))

    def _after_the_hold(self, at: Situation) -> Step:
        # A copy of what the broker counts would begin at 1 again, and the cap would never come.
        return Step.REQUEUE if at.counts else Step.COPY


def check_retries(
    handler: str,
    source: SubscriptionSource,
    policy: FailurePolicy,
    *,
    max_attempts: int | None,
    dead_letter: str | None,
    retry_to: str | None,
) -> None:
    """Refuse what could only fail once a delivery is to be retried.

    Args:
        handler: The handler's name, for the error.
        source: What it reads.
        policy: The failure policy that counts.
        max_attempts: The mount's cap, or none.
        dead_letter: Where the mount sends spent deliveries, or none.
        retry_to: Where the mount publishes copies, or none.

    Raises:
        RegistrationError: The policy asks for dead letters and none are declared, or copies
            for another attempt would have nowhere to go.
    """
    rule = policy.dead_letter_rule
    if rule is not None and dead_letter is None:
        raise RegistrationError(
            f"{handler}: its failure policy says {rule}, and the mount declares no dead letters; "
            "give dead_letter=, or choose another outcome"
        )

    if max_attempts is None or retry_to is not None or source.retry == "in_place" or source.copies_to is not None:
        return

    raise RegistrationError(
        f"{handler}: max_attempts={max_attempts} may need a copy for another attempt, and {source.name!r} "
        "reads several destinations; name the one for copies with retry_to="
    )
