"""Layers: code around every delivery, and around everything that is sent.

A consume layer is an `async def layer(ctx, call_next) -> Outcome`: it awaits
`call_next(ctx)`, or decides by itself. A publish layer is an
`async def layer(outgoing, call_next)`: it awaits `call_next(outgoing)`, or sends nothing.
The first added is the outermost; those of the app stand around those of a router, of the
declaration, of the mount.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from pystream._callables import is_async
from pystream.context import BatchContext, Context
from pystream.errors import ConfigurationError
from pystream.outcomes import Outcome
from pystream.protocols import Outgoing, Publisher

__all__ = ["BatchCallNext", "CallNext", "Layer", "PublishLayer", "PublishNext", "check_layers", "with_layers"]

CallNext: TypeAlias = "Callable[[Any], Awaitable[Outcome]]"
"""Goes on with the context that it is given: to the next layer, at last to decoding and the handler.

Raises what the handler raises, and `DecodeError` where the message cannot be read.
"""

BatchCallNext: TypeAlias = "Callable[[BatchContext], Awaitable[Outcome | list[Outcome]]]"
"""The same around a batch: it answers one outcome for all of its deliveries, or a list with one for each.

Raises what the handler raises; what cannot be read is settled alone, and raises nothing.
"""

Layer: TypeAlias = (
    "Callable[[Any, CallNext], Awaitable[Outcome]] | Callable[[Any, BatchCallNext], Awaitable[Outcome | list[Outcome]]]"
)
"""Around a delivery; with a `BatchContext` for its first parameter, around a batch."""

PublishNext: TypeAlias = "Callable[[Outgoing], Awaitable[None]]"
"""Goes on with the message: to the next layer, at last to the broker, whose confirmation it awaits."""

PublishLayer: TypeAlias = "Callable[[Outgoing, PublishNext], Awaitable[None]]"
"""Around everything that is sent: replies, publishes of handlers, retry copies, dead letters."""


def check_layers(owner: str, setting: str, layers: Any) -> tuple[Any, ...]:
    """The layers as a tuple.

    Args:
        owner: Who was given them, for the error.
        setting: `layers` or `publish_layers`.
        layers: A list or tuple of coroutine functions of two parameters, or none.

    Raises:
        ConfigurationError: One of them is none.
    """
    if layers is None:
        return ()

    if not isinstance(layers, list | tuple):
        raise ConfigurationError(f"{owner}: {setting}={layers!r}; give a list of `async def` functions")

    first = "outgoing" if setting == "publish_layers" else "ctx"
    for layer in layers:
        if not _takes_two(layer):
            raise ConfigurationError(
                f"{owner}: {setting} holds {layer!r}, which is no layer; "
                f"write `async def layer({first}, call_next)`, and give the function itself"
            )

    return tuple(layers)


def with_layers(publisher: Publisher, layers: Sequence[PublishLayer]) -> Publisher:
    """The publisher with layers around each send; itself if there are none."""
    return _LayeredPublisher(publisher, layers) if layers else publisher


class _LayeredPublisher:
    __slots__ = ("_layers", "_publisher")

    def __init__(self, publisher: Publisher, layers: Iterable[PublishLayer]) -> None:
        self._publisher = publisher
        self._layers = tuple(layers)[::-1]

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        """See `Publisher.publish`."""
        send = self._last(options)
        for layer in self._layers:
            send = _around(layer, send)

        # Of its own, so that a layer may change it.
        await send(Outgoing(outgoing.destination, outgoing.payload, dict(outgoing.headers), outgoing.key))

    def _last(self, options: Any) -> PublishNext:
        publish = self._publisher.publish

        def send(outgoing: Outgoing) -> Awaitable[None]:
            return publish(outgoing, options)

        return send


def _around(layer: PublishLayer, following: PublishNext) -> PublishNext:
    def send(outgoing: Outgoing) -> Awaitable[None]:
        return layer(outgoing, following)

    return send


def _takes_two(layer: Any) -> bool:
    if not callable(layer) or isinstance(layer, type):
        return False

    if not is_async(layer) and not is_async(inspect.unwrap(layer)):
        return False

    try:
        inspect.signature(layer).bind(Context, Context)
    except (TypeError, ValueError):
        return False

    return True
