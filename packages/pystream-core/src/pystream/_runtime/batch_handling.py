"""From the payloads of a batch to the handler, and from what it returned to outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from pystream._runtime.live import LiveMount
from pystream._runtime.replies import compile_reply, refuse_uncalled
from pystream._runtime.verdicts import Verdicts
from pystream.context import BatchContext
from pystream.errors import PyStreamError
from pystream.failures import Backoff
from pystream.outcomes import Outcome, ack, retry
from pystream.parameters.context import BatchContextKind
from pystream.parameters.payload import PayloadKind
from pystream.protocols import Delivery, Outgoing

BatchCall: TypeAlias = "Callable[[list[Any], BatchContext], Awaitable[Any]]"
"""Call the handler with the payloads of a batch."""

Decision: TypeAlias = "Outcome | list[Outcome]"
"""One outcome for all deliveries of a batch, or one for each."""

Decide: TypeAlias = "Callable[[Any, BatchContext], Awaitable[Decision]]"
"""What a returned value means; raises if it means nothing, or cannot be encoded."""

_BACKOFF = Backoff()


def compile_batch_call(live: LiveMount) -> BatchCall:
    """The call of this mount's handler."""
    registered = live.registered
    handler, surroundings = registered.handler, live.surroundings
    pairs = list(zip(registered.signature.parameters, registered.kinds, strict=True))
    if len(pairs) == 1 and not pairs[0][0].keyword:

        def call_with_payloads(values: list[Any], context: BatchContext) -> Awaitable[Any]:
            result: Awaitable[Any] = handler(values)
            return result

        return call_with_payloads

    def argument_of(parameter: Any, kind: Any) -> Callable[[list[Any], BatchContext], Any]:
        if isinstance(kind, PayloadKind):
            return lambda values, context: values

        if isinstance(kind, BatchContextKind):
            return lambda values, context: context

        # What is left is of the mount, not of one delivery.
        get = kind.compile(parameter, surroundings)
        return lambda values, context: get(context._deliveries[0], None)

    arguments = [(parameter, argument_of(parameter, kind)) for parameter, kind in pairs]

    def call(values: list[Any], context: BatchContext) -> Awaitable[Any]:
        result: Awaitable[Any] = handler(
            *[get(values, context) for parameter, get in arguments if not parameter.keyword],
            **{parameter.name: get(values, context) for parameter, get in arguments if parameter.keyword},
        )
        return result

    return call


def compile_decide(live: LiveMount, verdicts: Verdicts) -> Decide:
    """What the values mean that this mount's handler returns.

    The return annotation says whether a list holds outcomes or replies. Where it does not, a
    list of nothing but outcomes is one; an empty list then is one of replies if `reply_to`
    is given, else one of outcomes.
    """
    registered, acknowledged = live.registered, ack()
    rules = registered.batch
    returns = "either" if rules is None else rules.returns
    publish = _discard(live, verdicts) if registered.reply_to is None else _publish(live, verdicts, registered.reply_to)

    async def decide(result: Any, context: BatchContext) -> Decision:
        if result is None:
            return acknowledged

        if type(result) is Outcome:
            return result

        refuse_uncalled(live, result)
        if not isinstance(result, list):
            return await publish(result, context)

        if returns == "outcomes" or (returns == "either" and _is_of_outcomes(live, result)):
            return [_outcome_at(live, place, item) for place, item in enumerate(result)]

        return await publish(result, context)

    return decide


def fitted(live: LiveMount, outcomes: Sequence[Outcome], size: int) -> list[Outcome]:
    """One outcome for each of `size` deliveries: a missing tail is retried, a surplus ignored."""
    if len(outcomes) != size:
        live.report.outcomes_do_not_fit(len(outcomes), size)

    return [*outcomes[:size], *[retry()] * (size - len(outcomes))]


def _is_of_outcomes(live: LiveMount, result: list[Any]) -> bool:
    found = sum(type(item) is Outcome for item in result)
    if 0 < found < len(result):
        raise PyStreamError(
            f"{live.registered.signature.name} returned a list of {found} outcomes and {len(result) - found} "
            "other values; return one kind"
        )

    return found > 0 or (not result and live.registered.reply_to is None)


def _outcome_at(live: LiveMount, place: int, item: Any) -> Outcome:
    if item is None:
        return ack()

    refuse_uncalled(live, item)
    if type(item) is not Outcome:
        raise PyStreamError(
            f"{live.registered.signature.name} returned a list with a {type(item).__name__} at place {place}; "
            "return one outcome for each delivery"
        )

    return item


def _publish(live: LiveMount, verdicts: Verdicts, reply_to: str) -> Decide:
    encode, publisher = live.registered.encode_reply, live.publisher

    async def publish(result: Any, context: BatchContext) -> Decision:
        if not isinstance(result, list):
            raise PyStreamError(
                f"{live.registered.signature.name} handles batches and returned a {type(result).__name__}; "
                f"return a list of replies for reply_to={reply_to!r}"
            )

        outgoing = [Outgoing(reply_to, encode(value), {}) for value in result]
        try:
            for message in outgoing:
                await publisher.publish(message)
        except Exception as error:
            deliveries = context._deliveries
            live.report.reply_failed(deliveries[0], error)
            return [verdicts.backed_off(_BACKOFF, verdicts.attempt(item, context._reruns)) for item in deliveries]

        return ack()

    return publish


def _discard(live: LiveMount, verdicts: Verdicts) -> Decide:
    discard = compile_reply(live, verdicts)

    async def publish(result: Any, context: BatchContext) -> Decision:
        delivery: Delivery = context._deliveries[0]
        return await discard(delivery, result, context._reruns)

    return publish
