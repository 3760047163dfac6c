"""What a handler's signature says, with every annotation resolved."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pystream.errors import RegistrationError
from pystream.outcomes import Outcome
from pystream.parameters import Parameter
from pystream.parameters._kind import MISSING
from pystream.subscriber import handler_name

_UNRESOLVABLE = (NameError, AttributeError, TypeError, SyntaxError)
_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """A handler's name, parameters and reply.

    Attributes:
        name: How it is called in messages.
        parameters: In the order of the signature.
        reply: The type of the values to be published: the return annotation without `None`
            and `Outcome`; `Any` if there is no annotation; `None` if nothing is left.
        is_async: Whether it is a coroutine function; otherwise it runs on a thread.
    """

    name: str
    parameters: tuple[Parameter, ...]
    reply: Any
    is_async: bool = True


def read_signature(handler: Callable[..., Any]) -> HandlerSignature:
    """Read a handler's signature.

    Raises:
        RegistrationError: It is a generator or a class, or its parameters cannot be filled.
    """
    name = handler_name(handler)
    function = _function(handler)
    if isinstance(function, type):
        raise RegistrationError(f"{name} is a class; mount an instance that can be called, or a function")

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistrationError(
            f"{name} is a generator, and nothing would run it; use a `def` or an `async def` that returns one value, "
            "and publish several through a parameter Out[T]"
        )

    hints = _hints(function, name)
    parameters = _parameters(handler, hints, name)
    reply = _reply(hints.get("return", Any))
    return HandlerSignature(name, parameters, reply, is_async=inspect.iscoroutinefunction(function))


def read_parameters(fn: Callable[..., Any], name: str) -> tuple[Parameter, ...]:
    """The parameters of what is no handler, such as a hook.

    Raises:
        RegistrationError: They cannot be filled.
    """
    return _parameters(fn, _hints(_function(fn), name), name)


def _parameters(handler: Any, hints: dict[str, Any], name: str) -> tuple[Parameter, ...]:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{name}: its signature cannot be read; wrap it in a function") from error

    bound = _bound_by_name(handler)
    return tuple(_parameter(item, hints, name) for item in signature.parameters.values() if item.name not in bound)


def _function(handler: Any) -> Any:
    """The function whose code runs: below partials, methods and callable objects."""
    while isinstance(handler, functools.partial):
        handler = handler.func

    if not inspect.isroutine(handler) and not isinstance(handler, type):
        handler = type(handler).__call__

    return getattr(handler, "__func__", handler)


def _bound_by_name(handler: Any) -> set[str]:
    """What partials have filled by keyword: still in the signature, with a default."""
    bound: set[str] = set()
    while isinstance(handler, functools.partial):
        bound.update(handler.keywords)
        handler = handler.func

    return bound


def _hints(function: Any, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except _UNRESOLVABLE as error:
        culprit = next((item for item in _unresolved(function)), "return")
        raise RegistrationError(
            f"{name}: the annotation of {culprit!r} in module {function.__module__!r} cannot be resolved ({error}); "
            "define or import the name at the top level of that module, outside `if TYPE_CHECKING`"
        ) from error


def _unresolved(function: Any) -> list[str]:
    """The parameters whose annotation, taken alone, cannot be resolved."""
    culprits = []
    for parameter, annotation in function.__annotations__.items():
        probe = types.SimpleNamespace(__annotations__={parameter: annotation})
        try:
            get_type_hints(probe, globalns=function.__globals__, include_extras=True)
        except _UNRESOLVABLE:
            culprits.append(parameter)

    return culprits


def _parameter(item: inspect.Parameter, hints: dict[str, Any], name: str) -> Parameter:
    if item.kind in _VARIADIC:
        raise RegistrationError(
            f"{name}: the parameter {_VARIADIC[item.kind]}{item.name} cannot be filled; name each parameter"
        )

    if item.name not in hints:
        raise RegistrationError(f"{name}: the parameter {item.name!r} has no annotation; say what it should receive")

    annotation, metadata = hints[item.name], ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        metadata = tuple(rest)

    return Parameter(
        name=item.name,
        annotation=annotation,
        metadata=metadata,
        default=MISSING if item.default is inspect.Parameter.empty else item.default,
        keyword=item.kind is inspect.Parameter.KEYWORD_ONLY,
    )


def _reply(returns: Any) -> Any:
    members = get_args(returns) if get_origin(returns) in (Union, types.UnionType) else (returns,)
    values = tuple(item for item in members if item not in (Outcome, None, type(None)))
    if not values:
        return None

    return values[0] if len(values) == 1 else Union[values]  # noqa: UP007 - made of a tuple
