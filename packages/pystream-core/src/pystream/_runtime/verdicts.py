"""What a failure means for its delivery."""

from __future__ import annotations

from dataclasses import replace

from pystream._loops import in_cancelled_scope, is_cancellation
from pystream._runtime.live import LiveMount
from pystream.context import attempt_of
from pystream.errors import DecodeError, StrayCancellation
from pystream.failures import Backoff, FailFast
from pystream.outcomes import Outcome, Settle
from pystream.parameters import Undecodable
from pystream.protocols import Delivery

# A delay must stay below what the source can hold; a tenth of slack keeps a jittered one there.
_SHARE_OF_MAX_DELAY = 0.9


class Verdicts:
    """Turns what a handler raised into an outcome, by the mount's failure policy."""

    __slots__ = ("_live", "_policy", "_streak")

    def __init__(self, live: LiveMount) -> None:
        self._live = live
        self._policy = live.registered.policy
        self._streak = live.streak

    def raised(self, delivery: Delivery, error: BaseException, reruns: int) -> Outcome | None:
        """The outcome; none if the delivery was left unsettled.

        Raises:
            BaseException: `error` itself, where it is no failure of the handler: a
                cancellation by the stop, or an exit. The delivery is given back first.
        """
        if isinstance(error, Undecodable):
            return self._unreadable(delivery, error.error)

        self._streak.reset()
        settle = settle_in(error)
        if settle is not None:
            return settle.outcome

        if isinstance(error, Exception):
            return self.failed(delivery, error, reruns)

        if self._live.loop.stray_cancellation(error):
            stray = StrayCancellation(f"the handler of {self._live.registered.name} was cancelled by nobody")
            stray.__cause__ = error
            return self.failed(delivery, stray, reruns)

        if isinstance(error, SystemExit | KeyboardInterrupt):
            # Out of a worker's task asyncio would raise it past every task group, and nothing would be closed.
            return self._fail_fast(delivery, error)

        self._live.leave_unsettled(delivery)
        if is_cancellation(error) and not in_cancelled_scope() and not self._live.cancelled():
            # This task ends; the form's task group would go on without it and say nothing.
            self._live.stop_taking()
            self._live.fail("loop", error)

        raise error

    def failed(self, delivery: Delivery, error: Exception, reruns: int) -> Outcome | None:
        """The outcome of a delivery whose handler failed; none if it was left unsettled."""
        attempt = self.attempt(delivery, reruns)
        try:
            verdict = self._policy.on_error(error, attempt)
        except Exception as broken:
            broken.__context__ = error
            return self._fail_fast(delivery, broken)

        if isinstance(verdict, FailFast):
            return self._fail_fast(delivery, error)

        outcome = self.backed_off(verdict, attempt) if isinstance(verdict, Backoff) else self._shortened(verdict)
        self._live.report.handler_failed(delivery, error, attempt, outcome)
        return outcome

    def backed_off(self, backoff: Backoff, attempt: int) -> Outcome:
        """A retry after the attempt's delay, kept below what the source can hold."""
        delay = backoff.delay(attempt)
        longest = self._live.registered.source.max_delay
        return Outcome("retry", delay if longest is None else min(delay, longest * _SHARE_OF_MAX_DELAY))

    def can_hold(self, outcome: Outcome) -> bool:
        """Whether the source can hold a delivery for as long as the outcome asks."""
        longest = self._live.registered.source.max_delay
        return longest is None or outcome.delay is None or outcome.delay < longest

    def _shortened(self, outcome: Outcome) -> Outcome:
        """A policy's outcome, its delay kept below what the source can hold."""
        longest = self._live.registered.source.max_delay
        if longest is None or self.can_hold(outcome):
            return outcome

        return replace(outcome, delay=longest * _SHARE_OF_MAX_DELAY)

    def attempt(self, delivery: Delivery, reruns: int) -> int:
        """Which attempt this is, from 1; an unreadable header counts as none."""
        try:
            return attempt_of(delivery) + reruns
        except DecodeError:
            return 1 + reruns

    def _unreadable(self, delivery: Delivery, error: Exception) -> Outcome | None:
        has_dead_letter = self._live.registered.mounting.dead_letter is not None
        limit = None if has_dead_letter else self._policy.decode_limit
        if limit is not None and self._streak.add() >= limit:
            # Left unsettled, so that no more is lost than was already dropped.
            reason = DecodeError(f"{limit} deliveries in a row could not be read; the last one: {error}")
            reason.__cause__ = error
            return self._fail_fast(delivery, reason)

        rule = self._policy.on_unreadable(error, has_dead_letter=has_dead_letter)
        self._live.report.unreadable(delivery, error, rule)
        if isinstance(rule, FailFast):
            # Dropped all the same: it would come back into the same failure at every start.
            self._live.stop_taking()
            self._live.fail("handler", error)
            return Outcome("drop")

        return self._shortened(rule)

    def _fail_fast(self, delivery: Delivery, error: BaseException) -> Outcome | None:
        self._live.stop_taking()
        self._live.leave_unsettled(delivery)
        self._live.fail("handler", error)
        return None


def settle_in(error: BaseException) -> Settle | None:
    """The `Settle` that was raised, also as the only kind of leaf in groups of a task group."""
    if isinstance(error, Settle):
        return error

    if not isinstance(error, ExceptionGroup):
        return None

    found = [settle_in(leaf) for leaf in error.exceptions]
    first = found[0]
    return first if first is not None and all(item and item.outcome == first.outcome for item in found) else None
