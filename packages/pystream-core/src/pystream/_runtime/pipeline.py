"""One pipeline for every broker and every form: handle, reply, settle.

`compile_pipeline` puts together, once per mount, the function that a dispatch form calls
for each delivery. The common case - a handler that returns `None` - runs through `process`
and `handle` and touches nothing else; what is rarer stands in `Verdicts` (what a failure
means) and `Settling` (what an outcome does).
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from pystream._runtime.call import Call, compile_call
from pystream._runtime.live import LiveMount
from pystream._runtime.settling import Handle, Settling
from pystream._runtime.starter import Start, in_fresh_context
from pystream._runtime.verdicts import Verdicts
from pystream.errors import PublishError, PyStreamError
from pystream.failures import Backoff
from pystream.outcomes import Outcome, ack, drop, retry, retry_after
from pystream.protocols import Delivery, Outgoing

Reply: TypeAlias = "Callable[[Delivery, Any, int], Awaitable[Outcome | None]]"
"""Send what a handler returned; the outcome, or none if the delivery was left unsettled."""

Process: TypeAlias = "Callable[[Delivery], Coroutine[Any, Any, None]]"

_REPLY_BACKOFF = Backoff()

_UNCALLED = (ack, drop, retry, retry_after)
"""Returned as they are, they would be a value nobody asked for, and the delivery acknowledged."""


def compile_pipeline(live: LiveMount) -> Start[Delivery]:
    """The function that starts the work on one delivery of this mount.

    Called where the application's context variables are in force: each delivery gets a copy.
    """
    verdicts = Verdicts(live)
    handle = compile_handle(compile_call(live), verdicts, compile_reply(live, verdicts))
    settling = Settling(live, verdicts, handle)
    process = _observed(live, settling, handle) if live.hooks else _plain(settling, handle)
    return in_fresh_context(process, contextvars.copy_context())


def _plain(settling: Settling, handle: Handle) -> Process:
    acknowledged = ack()

    async def process(delivery: Delivery) -> None:
        outcome = await handle(delivery, 0)
        if outcome is acknowledged:
            try:
                await delivery.ack()
            except Exception as error:
                settling.failed(delivery, acknowledged, error)
        elif outcome is not None:
            await settling.settle(delivery, outcome, 0.0)

    return process


def _observed(live: LiveMount, settling: Settling, handle: Handle) -> Process:
    """The same for a mount with `post_settle` hooks, which want to know how long it took."""
    now = live.clock.now

    async def process(delivery: Delivery) -> None:
        started = now()
        outcome = await handle(delivery, 0)
        if outcome is not None:
            await settling.settle(delivery, outcome, started)

    return process


def compile_handle(call: Call, verdicts: Verdicts, reply: Reply) -> Handle:
    """The function from a delivery to its outcome."""
    acknowledged = ack()

    async def handle(delivery: Delivery, reruns: int) -> Outcome | None:
        try:
            result = await call(delivery, reruns)
        except BaseException as error:
            return verdicts.raised(delivery, error, reruns)

        if verdicts.undecodable:
            verdicts.undecodable = 0

        if result is None:
            return acknowledged

        if type(result) is Outcome:
            return result

        return await reply(delivery, result, reruns)

    return handle


def compile_reply(live: LiveMount, verdicts: Verdicts) -> Reply:
    """What becomes of a returned value: it is published, or discarded where nothing says where to."""
    reply_to = live.registered.reply_to
    return _discard(live, verdicts) if reply_to is None else _publish(live, verdicts, reply_to)


def _publish(live: LiveMount, verdicts: Verdicts, reply_to: str) -> Reply:
    encode, publisher = live.registered.encode_reply, live.publisher

    async def reply(delivery: Delivery, value: Any, reruns: int) -> Outcome | None:
        try:
            outgoing = Outgoing(reply_to, encode(value), {})
        except PublishError as error:
            return verdicts.failed(delivery, error, reruns)

        try:
            await publisher.publish(outgoing)
        except Exception as error:
            live.report.reply_failed(delivery, error)
            return verdicts.backed_off(_REPLY_BACKOFF, verdicts.attempt(delivery, reruns))
        except BaseException as error:
            return verdicts.raised(delivery, error, reruns)

        return ack()

    return reply


def _discard(live: LiveMount, verdicts: Verdicts) -> Reply:
    async def reply(delivery: Delivery, value: Any, reruns: int) -> Outcome | None:
        if any(value is function for function in _UNCALLED):
            name = value.__name__
            error = PyStreamError(
                f"{live.registered.signature.name} returned the function {name}: call it, {name}(...)"
            )
            return verdicts.failed(delivery, error, reruns)

        live.report.once(
            "discarded value",
            f"the handler returned a {type(value).__name__}, and no reply_to= says where to publish it; "
            "the delivery is acknowledged and the value discarded",
        )
        return ack()

    return reply
