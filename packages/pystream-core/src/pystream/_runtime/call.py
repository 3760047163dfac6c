"""From a delivery to the handler's coroutine, compiled from its parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pystream._runtime.live import LiveMount
from pystream.context import Context
from pystream.parameters import Getter, Undecodable
from pystream.protocols import Delivery

Call: TypeAlias = "Callable[[Delivery, int], Awaitable[Any]]"
"""Read the delivery and call the handler; raises `Undecodable` if the message is at fault.

The number says how often this delivery was run in place before.
"""


def compile_call(live: LiveMount) -> Call:
    """The call of this mount's handler.

    A handler of the payload alone gets the shortest one; a context is made only where a
    parameter looks at it.
    """
    registered = live.registered
    handler, parameters = registered.handler, registered.signature.parameters
    getters = [
        kind.compile(parameter, live.surroundings) for kind, parameter in zip(registered.kinds, parameters, strict=True)
    ]
    needs_context = any(kind.needs_context for kind in registered.kinds)
    keywords = {
        parameter.name: getter for parameter, getter in zip(parameters, getters, strict=True) if parameter.keyword
    }
    positional = tuple(getters[: len(getters) - len(keywords)])
    if len(positional) == 1 and not keywords and not needs_context:
        return _payload_only(handler, positional[0])

    context = _contexts(registered.name) if needs_context else _no_context
    if keywords:
        return _with_keywords(handler, positional, keywords, context)

    if len(positional) == 2:
        return _two(handler, *positional, context)

    return _many(handler, positional, context)


def _contexts(subscription: str) -> Callable[[Delivery, int], Context | None]:
    def make(delivery: Delivery, reruns: int) -> Context:
        return Context(delivery, subscription, reruns)

    return make


def _no_context(delivery: Delivery, reruns: int) -> None:
    return None


def _payload_only(handler: Callable[..., Awaitable[Any]], get: Getter) -> Call:
    def call(delivery: Delivery, reruns: int) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        return handler(get(delivery, None))

    return call


def _two(
    handler: Callable[..., Awaitable[Any]],
    first: Getter,
    second: Getter,
    context_of: Callable[[Delivery, int], Context | None],
) -> Call:
    def call(delivery: Delivery, reruns: int) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        context = context_of(delivery, reruns)
        return handler(first(delivery, context), second(delivery, context))

    return call


def _many(
    handler: Callable[..., Awaitable[Any]],
    getters: tuple[Getter, ...],
    context_of: Callable[[Delivery, int], Context | None],
) -> Call:
    def call(delivery: Delivery, reruns: int) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        context = context_of(delivery, reruns)
        return handler(*[get(delivery, context) for get in getters])

    return call


def _with_keywords(
    handler: Callable[..., Awaitable[Any]],
    getters: tuple[Getter, ...],
    keywords: dict[str, Getter],
    context_of: Callable[[Delivery, int], Context | None],
) -> Call:
    def call(delivery: Delivery, reruns: int) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        context = context_of(delivery, reruns)
        return handler(
            *[get(delivery, context) for get in getters],
            **{name: get(delivery, context) for name, get in keywords.items()},
        )

    return call
