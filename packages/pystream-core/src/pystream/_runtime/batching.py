"""The pipeline of a batch: decode each delivery, call the handler once, settle each delivery."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias, cast

from pystream._runtime.batch import Batch
from pystream._runtime.batch_handling import BatchCall, Decision, compile_batch_call, compile_decide, fitted
from pystream._runtime.batch_rules import BatchRules
from pystream._runtime.layering import chain_of
from pystream._runtime.live import LiveMount
from pystream._runtime.settling import Settling
from pystream._runtime.starter import Start, in_fresh_context
from pystream._runtime.verdicts import Verdicts, settle_in
from pystream.context import BatchContext, Context
from pystream.failures import FAIL_FAST
from pystream.outcomes import Continuation, Outcome, ack, retry
from pystream.parameters import Getter, Undecodable
from pystream.parameters.payload import PayloadKind
from pystream.protocols import Delivery

_AGAIN = ("retry", "dead_letter")
"""The kinds of outcomes that may come to another run in place; dead letters where none is declared."""

Decided: TypeAlias = "tuple[Delivery, Outcome, Context | None]"
"""A delivery, its outcome, and its context if anybody has looked at it."""


def compile_batches(live: LiveMount) -> Start[Batch]:
    """The function that starts the work on one batch of this mount, on this loop."""
    verdicts = Verdicts(live)
    batches = Batches(live, verdicts, Settling(live, verdicts, no_single), compile_batch_call(live))
    return in_fresh_context(batches.process, live.base, live.hogs)


async def no_single(delivery: Delivery, context: Context | None, reruns: int) -> Outcome | None:
    """Stands for the handler of single deliveries, which there is none: a batch runs its own again."""
    raise AssertionError(f"message {delivery.id} is one of a batch")


class Run(BatchContext):
    """A batch, or what is left of it after a run in place, on its way through the handler.

    Args:
        batch: What the form has started.
        deliveries: Those of it that this run is about.
        subscription: The name of the subscription.
        reruns: How often they were run in place before.
        started: When the work on the batch began.
    """

    __slots__ = ("_again", "_batch", "_delay", "_kinds", "_open", "_started")

    def __init__(
        self, batch: Batch, deliveries: Iterable[Delivery], subscription: str, reruns: int, started: float
    ) -> None:
        self._open = list(deliveries)  # what has no outcome yet
        super().__init__(tuple(self._open), subscription, reruns)
        self._batch = batch
        self._started = started
        self._again: list[Delivery] = []  # what is to be run again in place, after the delay
        self._delay = 0.0
        self._kinds: set[str] = set()  # of the outcomes that were carried out

    def _next(self) -> Run:
        """The run of what is to be run again, in the order of the stream."""
        again = {id(item) for item in self._again}
        left = [item for item in self._batch.deliveries if id(item) in again]
        return Run(self._batch, left, self.subscription, self._reruns + 1, self._started)


class Batches:
    """Handles and settles the batches of one mount on one loop.

    Args:
        live: The mount.
        verdicts: What its failures mean.
        settling: Carries out the outcome of each delivery.
        call: Calls the handler.
    """

    def __init__(self, live: LiveMount, verdicts: Verdicts, settling: Settling, call: BatchCall) -> None:
        registered = live.registered
        rules = cast("BatchRules", registered.batch)
        self._live = live
        self._verdicts = verdicts
        self._settling = settling
        self._call = call
        self._decide = compile_decide(live, verdicts)
        self._element: Getter = PayloadKind().compile(rules.element, live.surroundings)
        self._cap = registered.mounting.max_attempts
        self._acknowledged = ack()
        self._is_hooked = bool(live.hooks)
        layered: Any = chain_of(registered.layers, cast("Any", self._innermost), self._recover)
        self._chain = layered if registered.layers else self._innermost

    async def process(self, batch: Batch) -> None:
        """Handle and settle all of a batch; what is not settled when this ends is given back."""
        live = self._live
        started = live.clock.now() if self._is_hooked else 0.0
        run = Run(batch, batch.deliveries, live.registered.name, 0, started)
        try:
            await self._handle(run)
            while run._again:
                if not await live.pauses.pause(run._delay):
                    self._leave(run)
                    return

                run = run._next()
                await self._handle(run)
        except BaseException:
            self._leave(run)
            raise

    async def _handle(self, run: Run) -> None:
        """One call of the handler, and the settlements."""
        try:
            decision = await self._chain(run)
        except BaseException as error:
            decision = self._verdict(run, error)

        if not run._open:
            return

        plain = decision is self._acknowledged and run._afters is None and run._contexts is None
        await (self._acknowledge(run) if plain and not self._is_hooked else self._settle(run, decision))

    async def _innermost(self, run: Run) -> Decision:
        run._decided = None  # a layer may call on more than once
        values = await self._read(run)
        if not run._open:
            return self._acknowledged

        try:
            result = await self._call(values, run)
        except Exception as error:
            settle = settle_in(error)
            if settle is None:
                raise

            result = settle.outcome

        decision: Any = await self._decide(result, run)
        run._decided = decision
        return cast("Decision", decision)

    async def _read(self, run: Run) -> list[Any]:
        """The payloads of what can be read; the rest is settled one by one, or all given back by a fail-fast."""
        values: list[Any] = []
        readable: list[Delivery] = []
        refused: list[Decided] = []
        element, streak, cap = self._element, self._live.streak, self._cap
        unread = iter(run._open)
        for delivery in unread:
            if cap is not None and self._verdicts.attempt(delivery, run._reruns) > cap:
                refused.append((delivery, self._spent(delivery), None))
                continue

            try:
                if delivery.decode_error is not None:
                    raise Undecodable(delivery.decode_error)

                values.append(element(delivery, None))
            except Undecodable as error:
                outcome = self._refuse(delivery, error, run)
                if outcome is not None:
                    refused.append((delivery, outcome, run._context_of(delivery)))

                if outcome is None or self._live.registered.policy.decode is FAIL_FAST:
                    run._open = [*readable, *unread]
                    self._leave(run)
                    break
            else:
                readable.append(delivery)
                if streak.count:
                    streak.reset()
        else:
            run._open = readable

        if len(readable) < len(run._deliveries):
            run._narrow(tuple(run._open))
            await self._settle_each(run, refused)

        return values

    def _spent(self, delivery: Delivery) -> Outcome:
        """Of a delivery that came with more attempts than the cap: what every retry at the cap becomes."""
        return retry()

    def _refuse(self, delivery: Delivery, error: Undecodable, run: Run) -> Outcome | None:
        """Of a delivery that cannot be read; none if it was left unsettled."""
        return self._verdicts.raised(delivery, error, run._reruns)

    def _verdict(self, run: Run, error: BaseException) -> Any:
        """What a raised error means: a decision; nothing is open any more where all was left unsettled."""
        recovered = self._recover(run, error) if isinstance(error, Exception) else None
        if recovered is not None:
            return recovered

        if not run._open:
            raise error

        return self._outcomes_of_failure(run, error)

    def _recover(self, run: Run, error: Exception) -> Any:
        """The decision that stands although a layer has raised; none if the batch has failed."""
        settle = settle_in(error)
        if settle is not None:
            return settle.outcome

        decided = run._decided if run._open else self._acknowledged
        if decided is not None:
            self._live.report.layer_failed(run._batch.deliveries[0], error, decided)

        return decided

    def _outcomes_of_failure(self, run: Run, error: BaseException) -> list[Outcome]:
        """By the error policy, for each delivery with its own attempt; a fail-fast of one is one of all."""
        outcomes: list[Outcome] = []
        deliveries = deque(run._open)
        while deliveries:
            delivery = deliveries.popleft()
            run._open.remove(delivery)  # this call gives it back, if it comes to that
            outcome = self._verdicts.raised(delivery, error, run._reruns)
            if outcome is None:
                self._leave(run)
                return []

            outcomes.append(outcome)
            run._open.append(delivery)

        return outcomes

    async def _acknowledge(self, run: Run) -> None:
        """The common case: every delivery is done, and nothing follows."""
        done = 0
        try:
            for delivery in run._open:
                done += 1
                try:
                    await delivery.ack()
                except Exception as error:
                    self._settling.failed(delivery, self._acknowledged, error)
        finally:
            del run._open[:done]

    async def _settle(self, run: Run, decision: Decision) -> None:
        deliveries, run._open = run._open, []
        continuation: Continuation | None = None
        if isinstance(decision, Outcome):
            continuation = decision.continuation
            alike = decision if continuation is None else replace(decision, continuation=None)
            outcomes = [alike] * len(deliveries)
        else:
            outcomes = fitted(self._live, decision, len(deliveries))

        contexts = {id(item._delivery): item for item in run._contexts or ()}
        decided = [
            (delivery, outcome, contexts.get(id(delivery)))
            for delivery, outcome in zip(deliveries, outcomes, strict=True)
        ]
        await self._settle_each(run, decided, continuation, closes=True)

    async def _settle_each(
        self, run: Run, decided: list[Decided], continuation: Continuation | None = None, *, closes: bool = False
    ) -> None:
        """Settle, but for what is to be run again in place.

        Args:
            run: The run that they are of, and open in it no more.
            decided: The deliveries and their outcomes.
            continuation: What follows the last settlement.
            closes: Whether what was left in the batch's context follows it, too.
        """
        left = self._to_settle(run, decided)
        try:
            while left:
                delivery, outcome, context = left.popleft()
                if closes and not left:
                    outcome, context = self._closing(run, delivery, outcome, context, continuation)

                kind = await self._settle_one(delivery, outcome, context, run)
                if closes and kind is not None:
                    run._kinds.add(kind)
        except BaseException:
            run._open += [item[0] for item in left]
            raise

    def _to_settle(self, run: Run, decided: list[Decided]) -> deque[Decided]:
        """What is to be settled now; what is to be run again in place is noted in the run."""
        left: deque[Decided] = deque()
        waiting = deque(decided)
        while waiting:
            delivery, outcome, context = waiting.popleft()
            delay: float | None = None
            if outcome.kind in _AGAIN:
                possible, delay = self._settling.again_in_place(delivery, outcome, run._reruns)
                if possible is None:  # a fail-fast of one is one of all
                    run._open += [item[0] for item in (*left, *waiting)]
                    self._leave(run)
                    return deque()

                outcome = possible

            if delay is None:
                left.append((delivery, outcome, context))
            else:
                run._again.append(delivery)
                run._delay = max(run._delay, delay)

        return left

    async def _settle_one(self, delivery: Delivery, outcome: Outcome, context: Context | None, run: Run) -> str | None:
        final = await self._settling.settle(delivery, outcome, context, run._started, run._reruns)
        return None if final is None else final.kind

    def _closing(
        self,
        run: Run,
        delivery: Delivery,
        outcome: Outcome,
        context: Context | None,
        continuation: Continuation | None,
    ) -> tuple[Outcome, Context | None]:
        """The last settlement of a run, with what follows all of them."""
        if continuation is not None:
            outcome = replace(outcome, continuation=continuation)

        if run._afters is None:
            return outcome, context

        if context is None:
            context = Context(delivery, run.subscription, run._reruns)

        # What one settlement before has called for is due in any case; the rest if this one does.
        due = [(None if kind in run._kinds else kind, fn, args) for kind, fn, args in run._afters]
        context._afters = [*(context._afters or ()), *due]
        return outcome, context

    def _leave(self, run: Run) -> None:
        """Give back what is not settled, and let nothing overtake it."""
        for delivery in (*run._open, *run._again):
            delivery.release()

        run._open, run._again = [], []
        self._live.gave_up(cast("Delivery", run._batch))  # it is what the form has in hand
