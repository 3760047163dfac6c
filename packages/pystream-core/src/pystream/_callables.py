"""What can be told of a callable before it is called: how it runs, what it takes, how it reads."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Any


def _unpartial(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, partial):
        fn = fn.func

    return fn


def _called(fn: Callable[..., Any]) -> Any:
    """The function that runs when `fn` is called: its own, or its class's `__call__`."""
    fn = _unpartial(fn)
    return fn if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn).__call__


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a coroutine: also a partial or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(_called(fn))


def yields(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a generator, of either kind, and runs nothing."""
    called = _called(fn)
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def name_of(fn: object) -> str:
    """The dotted name of a function, or of the type of anything else."""
    target = _unpartial(fn) if callable(fn) else fn
    if not hasattr(target, "__qualname__"):
        target = type(target)

    return ".".join(filter(None, (target.__module__, target.__qualname__)))


def call_problem(fn: Callable[..., Any], event_type: type) -> str | None:
    """Why `fn` can be called neither with nothing nor with one event of the type; none if it can."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return "its signature cannot be read; wrap it in a def"

    if not parameters:
        return None

    if len(parameters) > 1:
        return f"it takes {len(parameters)}: {', '.join(str(p.replace(annotation=p.empty)) for p in parameters)}"

    (parameter,) = parameters
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return f"it takes {parameter.replace(annotation=parameter.empty)}, which is not one positional parameter"

    annotation = _annotation(fn, parameter)
    if accepts(annotation, event_type):
        return None

    return f"its parameter {parameter.name!r} is annotated {_annotation_text(annotation)}"


def _annotation(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    if parameter.annotation is parameter.empty:
        return Any

    try:
        hints = typing.get_type_hints(inspect.unwrap(_called(fn)), include_extras=True)
        return hints.get(parameter.name, parameter.annotation)
    except Exception:  # a name that exists for type checkers only; the text has to do
        return parameter.annotation


def accepts(annotation: Any, event_type: type) -> bool:
    """Whether a parameter of this annotation may be given an event of the type."""
    if annotation is Any:
        return True

    if isinstance(annotation, str):
        return event_type.__name__ in annotation.replace("|", " ").replace(".", " ").split()

    if typing.get_origin(annotation) is typing.Annotated:
        inner = typing.get_args(annotation)[0]  # `Annotated[Any, ...]` is meant for something else, as `State[Any]`
        return inner not in (Any, object) and accepts(inner, event_type)

    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(accepts(part, event_type) for part in typing.get_args(annotation))

    return isinstance(annotation, type) and annotation in event_type.__mro__


class _Text(str):
    """An annotation as it is shown in a signature: the bare text."""

    __slots__ = ()
    __repr__ = str.__str__


def shown(name: str, fn: Callable[..., Any]) -> str:
    """The head of the definition of `fn` as source text, under the name given."""
    kind = "async def" if is_async(fn) or inspect.isasyncgenfunction(fn) else "def"
    signature = inspect.signature(fn)
    parameters = [
        p if p.annotation is p.empty else p.replace(annotation=_Text(_annotation_text(p.annotation)))
        for p in signature.parameters.values()
    ]
    bare = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return f"'{kind} {name}{bare}{': yield' if yields(fn) else ''}'"


def _annotation_text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else str(getattr(annotation, "__name__", annotation))
