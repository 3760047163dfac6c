"""What becomes of a value that a handler returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pystream._runtime.live import LiveMount
from pystream._runtime.verdicts import Verdicts
from pystream.errors import PyStreamError
from pystream.failures import Backoff
from pystream.outcomes import Outcome, ack, dead_letter, drop, retry, retry_after
from pystream.protocols import Delivery, Outgoing

Reply: TypeAlias = "Callable[[Delivery, Any, int], Awaitable[Outcome]]"
"""Send what a handler returned for a delivery that was run so often before; raises if it cannot be encoded."""

_BACKOFF = Backoff()

_UNCALLED = (ack, drop, retry, retry_after, dead_letter)
"""Returned as they are, they would be a value nobody asked for, and the delivery acknowledged."""


def compile_reply(live: LiveMount, verdicts: Verdicts) -> Reply:
    """What becomes of a returned value: it is published, or discarded where nothing says where to."""
    reply_to = live.registered.reply_to
    return _discard(live) if reply_to is None else _publish(live, verdicts, reply_to)


def _publish(live: LiveMount, verdicts: Verdicts, reply_to: str) -> Reply:
    encode, publisher = live.registered.encode_reply, live.publisher

    async def reply(delivery: Delivery, value: Any, reruns: int) -> Outcome:
        outgoing = Outgoing(reply_to, encode(value), {})
        try:
            await publisher.publish(outgoing)
        except Exception as error:
            live.report.reply_failed(delivery, error)
            return verdicts.backed_off(_BACKOFF, verdicts.attempt(delivery, reruns))

        return ack()

    return reply


def _discard(live: LiveMount) -> Reply:
    async def reply(delivery: Delivery, value: Any, reruns: int) -> Outcome:
        refuse_uncalled(live, value)
        live.report.once(
            "discarded value",
            f"the handler returned a {type(value).__name__}, and no reply_to= says where to publish it; "
            "the delivery is acknowledged and the value discarded",
        )
        return ack()

    return reply


def refuse_uncalled(live: LiveMount, value: Any) -> None:
    """Refuse the function `retry` in place of the outcome `retry()`.

    Raises:
        PyStreamError: The value is such a function.
    """
    if any(value is function for function in _UNCALLED):
        name = value.__name__
        raise PyStreamError(f"{live.registered.signature.name} returned the function {name}: call it, {name}(...)")
