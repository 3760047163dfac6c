"""What a mount says of batches: checked once, at registration."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pystream._callables import name_of
from pystream._runtime.layering import understood
from pystream._runtime.signature import HandlerSignature
from pystream.context import BatchContext, Context
from pystream.errors import RegistrationError
from pystream.layers import Layer
from pystream.outcomes import Outcome
from pystream.parameters import Parameter, ParameterKind
from pystream.parameters.context import BatchContextKind, ContextKind
from pystream.parameters.header import HeaderKind
from pystream.parameters.source import SourceKind
from pystream.protocols import SubscriptionSource
from pystream.subscriber import ByKey, Settings

DEFAULT_WAIT = 0.01
"""Seconds; where neither the mount nor the source says how long a batch may fill."""

Returns: TypeAlias = Literal["outcomes", "replies", "either"]
"""What a returned list holds, by the annotation: one outcome per delivery, replies, or what its content says."""

_PER_DELIVERY = (ContextKind, HeaderKind, SourceKind)


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How a mount takes its deliveries together.

    Attributes:
        size: The most deliveries of a batch, 1 or more.
        wait: How long a batch may fill, in seconds, above 0.
        element: The payload parameter as if it were for one delivery.
        returns: What a returned list holds.
        reply: The type of one reply; none if nothing is to be published.
    """

    size: int
    wait: float
    element: Parameter
    returns: Returns
    reply: Any


def batch_rules(
    signature: HandlerSignature,
    kinds: Iterable[ParameterKind],
    payload: Parameter,
    source: SubscriptionSource,
    settings: Settings,
    layers: Iterable[Layer],
) -> BatchRules | None:
    """The rules of a batch mount; none for a mount of single deliveries.

    Raises:
        RegistrationError: Payload, parameters, settings or layers contradict each other.
    """
    is_list = payload.annotation is list or get_origin(payload.annotation) is list
    pairs = list(zip(signature.parameters, kinds, strict=True))
    if settings.batch is None:
        _refuse_batches(signature.name, pairs, payload, settings, layers, is_list=is_list)
        return None

    size = _size(signature.name, settings.batch)
    if not is_list:
        raise RegistrationError(
            f"{signature.name}: batch={size}, and the payload {payload.name!r} is no list; "
            f"annotate it as list[T], or leave batch= out"
        )

    _refuse_single(signature.name, pairs, settings, layers)
    returns, reply = _returns(signature)
    return BatchRules(size, _wait(signature.name, source, settings), _element(signature.name, payload), returns, reply)


def _refuse_batches(
    handler: str,
    pairs: list[tuple[Parameter, ParameterKind]],
    payload: Parameter,
    settings: Settings,
    layers: Iterable[Layer],
    *,
    is_list: bool,
) -> None:
    if is_list:
        raise RegistrationError(
            f"{handler}: the payload {payload.name!r} is a list, which asks for batches, and no batch= says how large; "
            "give batch=n, or for a JSON array use a RootModel, or tuple[T, ...]"
        )

    if settings.batch_wait is not None:
        raise RegistrationError(
            f"{handler}: batch_wait={settings.batch_wait!r} without batch=; give batch=n and a payload of list[T], "
            "or leave batch_wait= out"
        )

    for parameter, kind in pairs:
        if isinstance(kind, BatchContextKind):
            raise RegistrationError(
                f"{handler}: the parameter {parameter.name!r} asks for a BatchContext, and the handler gets single "
                "deliveries; annotate it as Context, or give batch=n and a payload of list[T]"
            )

    for layer in layers:
        if Context not in understood(layer):
            raise RegistrationError(
                f"{handler}: the layer {name_of(layer)} understands batches alone, and the handler gets single "
                "deliveries; annotate its first parameter as Context | BatchContext, or give batch=n"
            )


def _refuse_single(
    handler: str, pairs: list[tuple[Parameter, ParameterKind]], settings: Settings, layers: Iterable[Layer]
) -> None:
    for setting in ("workers", "threads"):
        value = getattr(settings, setting)
        if isinstance(value, ByKey):
            raise RegistrationError(
                f"{handler}: {setting}={value!r} orders by key, and a batch holds many keys; "
                f"give {setting}={value.lanes}, or leave batch= out"
            )

    for parameter, kind in pairs:
        if isinstance(kind, _PER_DELIVERY):
            raise RegistrationError(
                f"{handler}: the parameter {parameter.name!r} is of one delivery, and the handler gets batches; "
                "annotate one as BatchContext, whose contexts have the headers, key, id and attempt of each delivery"
            )

    for layer in layers:
        if BatchContext not in understood(layer):
            raise RegistrationError(
                f"{handler}: the layer {name_of(layer)} understands single deliveries alone, and the handler gets "
                "batches; annotate its first parameter as BatchContext, or as Context | BatchContext"
            )


def _size(handler: str, size: Any) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise RegistrationError(f"{handler}: batch={size!r}; give a whole number of 1 or more")

    return size


def _wait(handler: str, source: SubscriptionSource, settings: Settings) -> float:
    wait: Any = settings.batch_wait
    if wait is None:
        return DEFAULT_WAIT if source.batch_wait is None else source.batch_wait

    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 < wait < math.inf:
        raise RegistrationError(f"{handler}: batch_wait={wait!r}; give seconds above 0")

    return wait


def _element(handler: str, payload: Parameter) -> Parameter:
    if payload.metadata:
        raise RegistrationError(
            f"{handler}: the payload {payload.name!r} is an Annotated list, and pystream itself says how long it is; "
            "annotate what it holds, as list[Annotated[T, ...]]"
        )

    (annotation,) = get_args(payload.annotation) or (Any,)
    metadata: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        metadata = tuple(rest)

    return Parameter(name=payload.name, annotation=annotation, metadata=metadata)


def _returns(signature: HandlerSignature) -> tuple[Returns, Any]:
    """What a returned list holds, and the type of a reply; none if nothing is to be published."""
    returned = signature.reply
    if returned is None:
        return "outcomes", None

    if returned in (Any, list, list[Any]):
        return "either", Any

    if get_origin(returned) is not list:
        raise RegistrationError(
            f"{signature.name} handles batches and returns {returned!r}; annotate the return as None, Outcome, "
            "list[Outcome], or list[T] with reply_to="
        )

    (held,) = get_args(returned)
    members = set(get_args(held)) if get_origin(held) in (Union, types.UnionType) else {held}
    if members <= {Outcome, type(None)}:
        return "outcomes", None

    if Outcome in members:
        raise RegistrationError(
            f"{signature.name} returns a list of replies and outcomes, {returned!r}; return one kind: list[Outcome], "
            "or list[T] with reply_to="
        )

    return "replies", held
