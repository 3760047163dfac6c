"""One pipeline for every broker and every form: handle, reply, settle.

`compile_pipeline` puts together, once per mount and loop, the function that a dispatch form
calls for each delivery. The common case - a handler that returns `None` - runs through
`process`, or `process` and `handle`, and touches nothing else; what is rarer stands in
`Verdicts` (what a failure means) and `Settling` (what an outcome does).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from pystream._runtime.batching import compile_batches
from pystream._runtime.call import Call, compile_call, needs_context
from pystream._runtime.handling import Handle, compile_handle
from pystream._runtime.live import LiveMount
from pystream._runtime.replies import Reply, compile_reply
from pystream._runtime.settling import Settling
from pystream._runtime.starter import Start, in_fresh_context
from pystream._runtime.verdicts import Verdicts
from pystream.context import Context
from pystream.outcomes import Outcome, ack
from pystream.protocols import Delivery

Process: TypeAlias = "Callable[[Delivery], Coroutine[Any, Any, None]]"


def compile_pipeline(live: LiveMount) -> Start[Any]:
    """The function that starts the work on one delivery of this mount, or on one batch, on this loop."""
    if live.registered.batch is not None:
        return compile_batches(live)

    verdicts = Verdicts(live)
    call, reply = compile_call(live), compile_reply(live, verdicts)
    handle = compile_handle(live, call, verdicts, reply)
    settling = Settling(live, verdicts, handle)
    if live.hooks:
        process = _observed(live, settling, handle)
    elif needs_context(live.registered) or live.registered.mounting.max_attempts is not None:
        process = _through_handle(live, settling, handle)
    else:
        process = _shortest(live, call, verdicts, reply, settling)

    return in_fresh_context(process, live.base, live.hogs)


def _shortest(live: LiveMount, call: Call, verdicts: Verdicts, reply: Reply, settling: Settling) -> Process:
    """The mount that asks for nothing: its first run in line, as `handle` alone costs a twentieth of all."""
    acknowledged, streak = ack(), live.streak

    async def process(delivery: Delivery) -> None:
        outcome: Outcome | None
        try:
            result = await call(delivery, None)
            if streak.count:
                streak.reset()

            if result is None:
                outcome = acknowledged
            else:
                outcome = result if type(result) is Outcome else await reply(delivery, result, 0)
        except BaseException as error:
            outcome = verdicts.raised(delivery, error, 0)

        if outcome is acknowledged:
            try:
                await delivery.ack()
            except Exception as error:
                settling.failed(delivery, acknowledged, error)
        elif outcome is not None:
            await settling.settle(delivery, outcome, None, 0.0)

    return process


def _through_handle(live: LiveMount, settling: Settling, handle: Handle) -> Process:
    """The same for a mount with a context to look at, or with a cap on the attempts: `handle` sees to both."""
    acknowledged, name, contextual = ack(), live.registered.name, needs_context(live.registered)

    async def process(delivery: Delivery) -> None:
        context = Context(delivery, name) if contextual else None
        outcome = await handle(delivery, context, 0)
        if outcome is acknowledged and (context is None or context._afters is None):
            try:
                await delivery.ack()
            except Exception as error:
                settling.failed(delivery, acknowledged, error)
        elif outcome is not None:
            await settling.settle(delivery, outcome, context, 0.0)

    return process


def _observed(live: LiveMount, settling: Settling, handle: Handle) -> Process:
    """The same for a mount with `post_settle` hooks, which want to know how long it took."""
    now, name, contextual = live.clock.now, live.registered.name, needs_context(live.registered)

    async def process(delivery: Delivery) -> None:
        started = now()
        context = Context(delivery, name) if contextual else None
        outcome = await handle(delivery, context, 0)
        if outcome is not None:
            await settling.settle(delivery, outcome, context, started)

    return process
