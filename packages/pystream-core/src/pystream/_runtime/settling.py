"""What an outcome does, once, and what comes after it."""

from __future__ import annotations

from functools import partial
from typing import Any

from pystream._runtime.afterwards import Afterwards
from pystream._runtime.copies import Copies
from pystream._runtime.handling import Handle
from pystream._runtime.holding import Holding
from pystream._runtime.live import LiveMount
from pystream._runtime.retries import Plan, RetryRules, Situation, Step
from pystream._runtime.verdicts import Verdicts
from pystream.context import Context
from pystream.errors import SettlementRejected, SettlementUnsupported
from pystream.failures import Backoff
from pystream.outcomes import Outcome
from pystream.protocols import Delivery

_MANY_ATTEMPTS = 10
_BACKOFF = Backoff()


class Work:
    """One delivery on its way to its settlement.

    Attributes:
        context: Of the run that has decided the outcome: the last, where it is run in place.
        reruns: How often it was run in place.
        is_settled: Whether a settlement was begun: from then on it is not given back.
    """

    __slots__ = ("context", "delivery", "is_settled", "reruns", "started")

    def __init__(self, delivery: Delivery, context: Context | None, reruns: int, started: float) -> None:
        self.delivery = delivery
        self.context = context
        self.reruns = reruns
        self.started = started
        self.is_settled = False


class Settling:
    """Carries out the outcomes of one mount, on one loop.

    Args:
        live: The mount.
        verdicts: What its failures mean.
        handle: Runs a delivery again, where the source retries in place.
        holding: Holds deliveries for a delay; by default one of its own.
    """

    __slots__ = ("_afterwards", "_copies", "_handle", "_holding", "_live", "_rules", "_verdicts")

    def __init__(self, live: LiveMount, verdicts: Verdicts, handle: Handle, holding: Holding | None = None) -> None:
        mounting = live.registered.mounting
        self._live = live
        self._verdicts = verdicts
        self._handle = handle
        self._rules = RetryRules(max_attempts=mounting.max_attempts, has_dead_letter=mounting.dead_letter is not None)
        self._copies = Copies(live)
        self._holding = holding or Holding(live.clock, live.tracker, live.delays, live.report)
        self._afterwards = Afterwards(live)

    async def settle(
        self, delivery: Delivery, outcome: Outcome, context: Context | None, started: float, reruns: int = 0
    ) -> Outcome | None:
        """Settle, then start what comes after; never raises but for a cancellation.

        Args:
            delivery: It is settled once, or given back if this is cancelled before.
            outcome: What the handler decided.
            context: Its context, with what is to be called after the settlement; none without one.
            started: When the handling began, on the mount's clock.
            reruns: How often it was run in place before.

        Returns:
            What became of it; none if it is held for a delay, or was given back.
        """
        work = Work(delivery, context, reruns, started)
        try:
            plan = await self._decide(work, outcome)
            return None if plan is None else await self._carry_out(work, plan)
        except BaseException:
            if not work.is_settled:
                self._live.leave_unsettled(delivery)

            raise

    def again_in_place(self, delivery: Delivery, outcome: Outcome, reruns: int) -> tuple[Outcome | None, float | None]:
        """Of a delivery whose caller runs it again in place, if that is what the outcome means.

        Args:
            delivery: It is not touched, but for one that a fail-fast leaves unsettled.
            outcome: What the handler decided.
            reruns: How often it was run in place before.

        Returns:
            The outcome, or what stands for one that cannot be had here, none if the delivery was left
            unsettled; and the seconds until it is run again, none if it is to be settled.
        """
        work = Work(delivery, None, reruns, 0.0)
        possible = self._possible(work, outcome)
        if possible is None:
            return None, None

        plan = self._rules.plan(possible, self._situation(work))
        if plan.step is not Step.RUN_AGAIN:
            return possible, None

        if self._rules.max_attempts is None:
            self._warn_of_many(work)

        return possible, plan.delay

    def failed(self, delivery: Delivery, outcome: Outcome, error: Exception) -> None:
        """Note a settlement that was not made."""
        self._live.report.settlement_failed(delivery, outcome, error)

    async def _decide(self, work: Work, outcome: Outcome | None) -> Plan | None:
        """What is to be done, once all runs in place are over; none if the delivery was left unsettled."""
        while outcome is not None:
            outcome = self._possible(work, outcome)
            if outcome is None:
                break

            plan = self._rules.plan(outcome, self._situation(work))
            if outcome.kind == "retry" and self._rules.max_attempts is None:
                self._warn_of_many(work)

            if plan.is_spent:
                self._live.report.spent(work.delivery, self._attempt(work), self._rules.max_attempts)

            if plan.step is not Step.RUN_AGAIN:
                return plan

            if not await self._pause(work, plan.delay):
                break

            outcome = await self._run_again(work)

        return None

    def _possible(self, work: Work, outcome: Outcome) -> Outcome | None:
        """The outcome, or what stands for one that cannot be had here; none if the delivery was left unsettled."""
        if not self._verdicts.can_hold(outcome):
            name, longest = self._live.registered.name, self._live.registered.source.max_delay
            error = SettlementRejected(
                f"{name}: {outcome!r} asks for a delay that must stay below {longest:g} s on this source"
            )
            decided = self._verdicts.failed(work.delivery, error, work.reruns)
            if decided is None:
                return None

            outcome = decided

        if outcome.kind != "dead_letter" or self._rules.has_dead_letter:
            return outcome

        retried = self._verdicts.backed_off(_BACKOFF, self._attempt(work))
        self._live.report.no_dead_letter(work.delivery, outcome, retried)
        return (
            retried
            if outcome.continuation is None
            else retried.and_after(outcome.continuation[0], *outcome.continuation[1])
        )

    async def _run_again(self, work: Work) -> Outcome | None:
        work.reruns += 1
        if work.context is not None:
            work.context = Context(work.delivery, self._live.registered.name, work.reruns)

        return await self._handle(work.delivery, work.context, work.reruns)

    async def _pause(self, work: Work, delay: float) -> bool:
        """Wait with the delivery in hand; a stop meanwhile gives it back, and the answer is false."""
        if await self._live.pauses.pause(delay):
            return True

        self._live.leave_unsettled(work.delivery)
        return False

    async def _carry_out(self, work: Work, plan: Plan) -> Outcome | None:
        """Do it, or what can be done in its place; answers as `settle` does."""
        published = await self._published(work, plan)
        if published is None:
            return None

        plan = published
        if plan.step is Step.HOLD:
            self._hold(work, plan)
            return None

        continuations = self._afterwards.of(plan.outcome, work.context)
        has_tasks = self._afterwards.are_tasks(continuations)
        if has_tasks:
            await self._live.tracker.reserve()

        work.is_settled = True
        error = await self._perform(work.delivery, plan)
        instead = self._instead(work, plan, error)
        if instead is not None:
            work.is_settled = False
            if has_tasks:
                self._live.tracker.forgo()

            return await self._carry_out(work, instead)

        if error is not None:
            self.failed(work.delivery, plan.outcome, error)

        self._afterwards.start(
            continuations,
            plan.outcome,
            attempt=partial(self._attempt, work),
            started=work.started,
            error=error,
        )
        return plan.outcome

    async def _published(self, work: Work, plan: Plan) -> Plan | None:
        """The plan, once its message is published, or what stands for it; none if the delivery was given back."""
        tries = 0
        while plan.step in (Step.COPY, Step.BURY):
            error = await self._publish(work, plan)
            if error is None:
                break

            tries += 1
            situation = self._situation(work)
            wait = self._verdicts.backed_off(_BACKOFF, tries if situation.in_place else situation.attempt).delay or 0.0
            what = "a copy" if plan.step is Step.COPY else "a dead letter"
            self._live.report.copy_failed(work.delivery, what, error, wait)
            if not situation.in_place:
                return self._rules.given_back(plan.outcome, situation, wait)

            if not await self._pause(work, wait):
                return None

        return plan

    async def _publish(self, work: Work, plan: Plan) -> BaseException | None:
        """Publish what the plan asks for; answers why it could not be."""
        attempt = self._attempt(work)
        try:
            if plan.step is Step.COPY:
                await self._copies.retry(work.delivery, attempt)
            else:
                await self._copies.bury(work.delivery, plan.outcome.reason or "", attempt)
        except BaseException as error:
            # Let on, a cancellation by nobody would be swallowed, and the loop end without a word.
            if not isinstance(error, Exception) and not self._live.loop.stray_cancellation(error):
                raise

            return error

        return None

    def _hold(self, work: Work, plan: Plan) -> None:
        self._holding.hold(work.delivery, plan.delay, partial(self._go_on, work, Plan(plan.then, plan.outcome)))

    async def _go_on(self, work: Work, plan: Plan) -> None:
        try:
            await self._carry_out(work, plan)
        except BaseException:
            if not work.is_settled:
                work.delivery.release()

            raise

    async def _perform(self, delivery: Delivery, plan: Plan) -> Exception | None:
        try:
            if plan.step is Step.REJECT:
                await delivery.reject()
            elif plan.step is Step.REQUEUE:
                await delivery.requeue()
            elif plan.step is Step.DELAY:
                held: Any = delivery  # it has the capability `RetryAfter`, or this were not the plan
                await held.retry_after(plan.delay)
                self._live.delays.look()
            else:
                await delivery.ack()
        except Exception as error:
            return error

        return None

    def _instead(self, work: Work, plan: Plan, error: Exception | None) -> Plan | None:
        if not isinstance(error, SettlementUnsupported):
            return None

        return self._rules.instead(plan, self._situation(work))

    def _situation(self, work: Work) -> Situation:
        delivery = work.delivery
        return Situation(
            attempt=self._attempt(work),
            in_place=(delivery.retry or self._live.registered.source.retry) == "in_place",
            counts=delivery.delivery_count is not None,
            can_delay=hasattr(delivery, "retry_after"),
        )

    def _attempt(self, work: Work) -> int:
        return self._verdicts.attempt(work.delivery, work.reruns)

    def _warn_of_many(self, work: Work) -> None:
        attempt = self._attempt(work)
        if attempt > _MANY_ATTEMPTS:
            self._live.report.once(
                "many attempts",
                f"message {work.delivery.id} is retried after attempt {attempt}, and nothing caps the attempts",
            )
