"""What an outcome does, once, and what comes after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pystream._hooks import is_async
from pystream._runtime.handling import Handle
from pystream._runtime.live import LiveMount
from pystream._runtime.tracker import Call
from pystream._runtime.verdicts import Verdicts
from pystream.context import AfterSettle, Context
from pystream.errors import SettlementRejected
from pystream.hookspecs import Settled
from pystream.outcomes import Continuation, Outcome
from pystream.protocols import Delivery

_LEAST_PAUSE = 0.1  # between two runs in place: what Pulsar takes for a redelivery; no hot loop
_MANY_ATTEMPTS = 10


class Settling:
    """Carries out the outcomes of one mount.

    Args:
        live: The mount.
        verdicts: What its failures mean.
        handle: Runs a delivery again, where the source retries in place.
    """

    __slots__ = ("_handle", "_has_async_hooks", "_live", "_verdicts")

    def __init__(self, live: LiveMount, verdicts: Verdicts, handle: Handle) -> None:
        self._live = live
        self._verdicts = verdicts
        self._handle = handle
        self._has_async_hooks = any(hook.is_async for hook in live.hooks)

    async def settle(self, delivery: Delivery, outcome: Outcome, context: Context | None, started: float) -> None:
        """Settle, then start what comes after; never raises but for a cancellation.

        Args:
            delivery: It is settled once, or given back if this is cancelled before.
            outcome: What the handler decided.
            context: Its context, with what is to be called after the settlement; none without one.
            started: When the handling began, on the mount's clock.
        """
        try:
            final, context, reruns = await self._final(delivery, outcome, context)
            if final is None:
                return

            afters = [] if context is None else matching(context, final)
            tasks = self._has_async_hooks or _is_async(final.continuation) or any(map(_is_async, afters))
            if tasks:
                await self._live.tracker.reserve()
        except BaseException:
            self._live.leave_unsettled(delivery)
            raise

        error = await self._perform(delivery, final)
        calls = self._afterwards(delivery, final, afters, reruns, started, error)
        if tasks:
            self._live.tracker.start(calls, self._live.report.callback_failed)

    def failed(self, delivery: Delivery, outcome: Outcome, error: Exception) -> None:
        """Note a settlement that was not made."""
        self._live.report.settlement_failed(delivery, outcome, error)

    async def _final(
        self, delivery: Delivery, outcome: Outcome | None, context: Context | None
    ) -> tuple[Outcome | None, Context | None, int]:
        """The outcome to carry out, and the context of the run that decided it: the last, where it is run in place."""
        in_place = (delivery.retry or self._live.registered.source.retry) == "in_place"
        reruns = 0
        while outcome is not None and outcome.kind == "retry":
            outcome = self._holdable(delivery, outcome, reruns)
            if outcome is None or outcome.kind != "retry":
                continue

            self._warn_of_many(delivery, reruns)
            if not in_place and (outcome.delay is None or hasattr(delivery, "retry_after")):
                break

            # Either the handling task runs it again, or the broker cannot hold it for the delay.
            if not await self._live.pauses.pause(max(outcome.delay or 0.0, _LEAST_PAUSE)):
                self._live.leave_unsettled(delivery)
                return None, context, reruns

            if not in_place:
                return replace(outcome, delay=None), context, reruns

            reruns += 1
            if context is not None:
                context = Context(delivery, self._live.registered.name, reruns)

            outcome = await self._handle(delivery, context, reruns)

        return outcome, context, reruns

    def _holdable(self, delivery: Delivery, outcome: Outcome, reruns: int) -> Outcome | None:
        """The outcome, unless it asks for a delay that the source cannot hold: then what a failure means."""
        longest = self._live.registered.source.max_delay
        if longest is None or outcome.delay is None or outcome.delay < longest:
            return outcome

        error = SettlementRejected(
            f"{self._live.registered.name}: {outcome!r} asks for a delay "
            f"that must stay below {longest:g} s on this source"
        )
        return self._verdicts.failed(delivery, error, reruns)

    def _warn_of_many(self, delivery: Delivery, reruns: int) -> None:
        attempt = self._verdicts.attempt(delivery, reruns)
        if attempt > _MANY_ATTEMPTS:
            self._live.report.once(
                "many attempts",
                f"message {delivery.id} is retried after attempt {attempt}, and nothing caps the attempts",
            )

    async def _perform(self, delivery: Delivery, outcome: Outcome) -> Exception | None:
        try:
            if outcome.kind == "ack":
                await delivery.ack()
            elif outcome.kind == "drop":
                await delivery.reject()
            elif outcome.delay is None:
                await delivery.requeue()
            else:
                held: Any = delivery  # it has the capability `RetryAfter`: `_final` has seen to that
                await held.retry_after(outcome.delay)
        except Exception as error:
            self.failed(delivery, outcome, error)
            return error

        return None

    def _afterwards(
        self,
        delivery: Delivery,
        outcome: Outcome,
        afters: list[Continuation],
        reruns: int,
        started: float,
        error: Exception | None,
    ) -> list[Call]:
        """The continuation, the context's, then the hooks: plain ones are called now, the others are answered."""
        calls: list[Call] = []
        for continuation in filter(None, (outcome.continuation, *afters)):
            fn, args = continuation
            self._start(calls, getattr(fn, "__qualname__", repr(fn)), fn, args, is_async=_is_async(continuation))

        if not self._live.hooks:
            return calls

        event = Settled(
            subscription=self._live.registered.name,
            outcome=outcome,
            attempt=self._verdicts.attempt(delivery, reruns),
            duration=self._live.clock.now() - started,
            error=error,
        )
        for hook in self._live.hooks:
            self._start(calls, hook.name, hook.fn, (event,) if hook.takes_event else (), is_async=hook.is_async)

        return calls

    def _start(
        self, calls: list[Call], name: str, fn: Callable[..., Any], args: tuple[Any, ...], *, is_async: bool
    ) -> None:
        if is_async:
            calls.append((name, fn, args))
            return

        try:
            fn(*args)
        except BaseException as error:  # also an exit: the delivery is settled, and its loop goes on
            self._live.report.callback_failed(name, error)


def matching(context: AfterSettle, outcome: Outcome) -> list[Continuation]:
    """What was left in the context for an outcome of this kind."""
    return [(fn, args) for kind, fn, args in context._afters or () if kind in (None, outcome.kind)]


def _is_async(continuation: Continuation | None) -> bool:
    return continuation is not None and is_async(continuation[0])
