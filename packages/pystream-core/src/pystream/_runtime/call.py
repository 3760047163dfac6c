"""From a delivery to the handler's coroutine, compiled from its parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pystream._runtime.live import LiveMount
from pystream._runtime.registration import Registered
from pystream.context import Context
from pystream.parameters import Getter, Undecodable
from pystream.protocols import Delivery

Call: TypeAlias = "Callable[[Delivery, Context | None], Awaitable[Any]]"
"""Read the delivery and call the handler; raises `Undecodable` if the message is at fault.

The context is there if `needs_context` says so.
"""


def compile_call(live: LiveMount) -> Call:
    """The call of this mount's handler; one of the payload alone gets the shortest."""
    registered = live.registered
    handler, parameters = registered.handler, registered.signature.parameters
    getters = [
        kind.compile(parameter, live.surroundings) for kind, parameter in zip(registered.kinds, parameters, strict=True)
    ]
    keywords = {
        parameter.name: getter for parameter, getter in zip(parameters, getters, strict=True) if parameter.keyword
    }
    positional = tuple(getters[: len(getters) - len(keywords)])
    if keywords:
        return _with_keywords(handler, positional, keywords)

    if len(positional) == 1:
        return _one(handler, *positional)

    if len(positional) == 2:
        return _two(handler, *positional)

    return _many(handler, positional)


def needs_context(registered: Registered) -> bool:
    """Whether anything of this mount looks at a context: a parameter or a layer."""
    return bool(registered.layers) or any(kind.needs_context for kind in registered.kinds)


def _one(handler: Callable[..., Awaitable[Any]], get: Getter) -> Call:
    def call(delivery: Delivery, context: Context | None) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        return handler(get(delivery, context))

    return call


def _two(
    handler: Callable[..., Awaitable[Any]],
    first: Getter,
    second: Getter,
) -> Call:
    def call(delivery: Delivery, context: Context | None) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        return handler(first(delivery, context), second(delivery, context))

    return call


def _many(
    handler: Callable[..., Awaitable[Any]],
    getters: tuple[Getter, ...],
) -> Call:
    def call(delivery: Delivery, context: Context | None) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        return handler(*[get(delivery, context) for get in getters])

    return call


def _with_keywords(
    handler: Callable[..., Awaitable[Any]],
    getters: tuple[Getter, ...],
    keywords: dict[str, Getter],
) -> Call:
    def call(delivery: Delivery, context: Context | None) -> Awaitable[Any]:
        if delivery.decode_error is not None:
            raise Undecodable(delivery.decode_error)

        return handler(
            *[get(delivery, context) for get in getters],
            **{name: get(delivery, context) for name, get in keywords.items()},
        )

    return call
