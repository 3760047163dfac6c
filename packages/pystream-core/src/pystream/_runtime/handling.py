"""From a delivery to its outcome: layers, decoding, the handler, the reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pystream._runtime.call import Call
from pystream._runtime.layering import Recover, Step, chain_of
from pystream._runtime.live import LiveMount
from pystream._runtime.replies import Reply
from pystream._runtime.verdicts import Verdicts, settle_in
from pystream.context import Context
from pystream.outcomes import Outcome, ack, retry
from pystream.parameters import Undecodable
from pystream.protocols import Delivery

Handle: TypeAlias = "Callable[[Delivery, Context | None, int], Awaitable[Outcome | None]]"
"""Run the handler on a delivery that was run so often before; none if it was left unsettled.

The context is there if `call.needs_context` says so.
"""


def compile_handle(live: LiveMount, call: Call, verdicts: Verdicts, reply: Reply) -> Handle:
    """The function from a delivery to its outcome."""
    handle = _layered(live, call, verdicts, reply) if live.registered.layers else _bare(live, call, verdicts, reply)
    cap = live.registered.mounting.max_attempts
    return handle if cap is None else _capped(handle, verdicts, cap)


def _bare(live: LiveMount, call: Call, verdicts: Verdicts, reply: Reply) -> Handle:
    acknowledged, streak = ack(), live.streak

    async def handle(delivery: Delivery, context: Context | None, reruns: int) -> Outcome | None:
        try:
            result = await call(delivery, context)
            if streak.count:
                streak.reset()

            if result is None:
                return acknowledged

            if type(result) is Outcome:
                return result

            return await reply(delivery, result, reruns)
        except BaseException as error:
            return verdicts.raised(delivery, error, reruns)

    return handle


def _layered(live: LiveMount, call: Call, verdicts: Verdicts, reply: Reply) -> Handle:
    chain = chain_of(live.registered.layers, _innermost(live, call, reply), _recovering(live))

    async def handle(delivery: Delivery, context: Any, reruns: int) -> Outcome | None:
        try:
            return await chain(context)
        except BaseException as error:
            unreadable = context._unreadable
            if unreadable is not None and _is_all_of(error, unreadable):
                return verdicts.raised(delivery, Undecodable(unreadable), reruns)

            return verdicts.raised(delivery, error, reruns)

    return handle


def _innermost(live: LiveMount, call: Call, reply: Reply) -> Step[Context]:
    acknowledged, streak = ack(), live.streak

    async def innermost(context: Context) -> Outcome:
        delivery = context._delivery
        context._decided = None  # a layer may call on more than once
        try:
            result = await call(delivery, context)
        except Undecodable as error:
            unreadable = context._unreadable = error.error
            raise unreadable from unreadable.__cause__
        except Exception as error:
            if streak.count:
                streak.reset()  # it was read, whatever a layer makes of the failure

            settle = settle_in(error)
            if settle is None:
                raise

            result = settle.outcome

        if streak.count:
            streak.reset()

        if result is None:
            outcome = acknowledged
        else:
            outcome = result if type(result) is Outcome else await reply(delivery, result, context._reruns)

        context._decided = outcome
        return outcome

    return innermost


def _recovering(live: LiveMount) -> Recover[Context]:
    def recover(context: Context, error: Exception) -> Outcome | None:
        settle = settle_in(error)
        if settle is not None:
            return settle.outcome

        decided = context._decided
        if decided is not None:
            # The work is done, and the reply may be out: to run it all again would help nobody.
            live.report.layer_failed(context._delivery, error, decided)

        return decided

    return recover


def _is_all_of(error: BaseException, wanted: Exception) -> bool:
    """Whether `wanted` was raised, alone or in groups of a layer's task groups."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]

    return error is wanted


def _capped(handle: Handle, verdicts: Verdicts, cap: int) -> Handle:
    spent = retry()

    async def capped(delivery: Delivery, context: Context | None, reruns: int) -> Outcome | None:
        if verdicts.attempt(delivery, reruns) > cap:
            return spent  # what every retry at the cap becomes, without the handler

        return await handle(delivery, context, reruns)

    return capped
