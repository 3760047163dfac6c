"""Consume layers, put together once per mount."""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pystream._callables import name_of
from pystream.context import AfterSettle, BatchContext, Context
from pystream.errors import PyStreamError, RegistrationError
from pystream.layers import Layer
from pystream.outcomes import Outcome

_UNRESOLVABLE = (NameError, AttributeError, TypeError, SyntaxError)
ContextT = TypeVar("ContextT", bound=AfterSettle)
Step = Callable[[ContextT], Awaitable[Outcome]]
"""Of a batch it answers one outcome for all, or a list with one for each delivery."""

Recover = Callable[[ContextT, Exception], Outcome | None]
"""The outcome that stands although a layer has raised; none if the delivery has failed."""


def understood(layer: Layer) -> frozenset[type]:
    """What a layer goes around, by the annotation of its first parameter: `Context`, `BatchContext` or both.

    Without an annotation it is `Context`.

    Raises:
        RegistrationError: The annotation cannot be resolved.
    """
    first = next(iter(inspect.signature(layer).parameters.values()))
    if first.annotation is inspect.Parameter.empty:
        return frozenset({Context})

    target = getattr(layer, "func", layer)  # of a functools.partial
    function = inspect.unwrap(target if inspect.isroutine(target) else type(target).__call__)
    probe = types.SimpleNamespace(__annotations__={"context": first.annotation})
    try:
        annotation = get_type_hints(probe, globalns=getattr(function, "__globals__", {}))["context"]
    except _UNRESOLVABLE as error:
        raise RegistrationError(
            f"the layer {name_of(layer)}: the annotation of {first.name!r} cannot be resolved ({error}); "
            "import the name at the top level of its module, outside `if TYPE_CHECKING`"
        ) from error

    named = set(get_args(annotation)) if get_origin(annotation) in (Union, types.UnionType) else {annotation}
    return frozenset(named & {Context, BatchContext}) or frozenset({Context})


def chain_of(layers: Sequence[Layer], innermost: Step[ContextT], recover: Recover[ContextT]) -> Step[ContextT]:
    """The function that goes through the layers, the first one outermost, to `innermost`.

    Each step notes in the context what it has decided, as `innermost` does: what is noted
    when a layer raises was decided within it, and stands.

    Args:
        layers: From the outermost to the innermost.
        innermost: What the last of them calls.
        recover: Answers the outcome in place of what a layer has raised, if there is one.
    """
    step = innermost
    for layer in reversed(layers):
        step = _around(layer, step, recover)

    return step


def _around(layer: Layer, following: Step[ContextT], recover: Recover[ContextT]) -> Step[ContextT]:
    around: Any = layer

    async def step(context: ContextT) -> Outcome:
        context._decided = None  # what an earlier call has decided, if the layer around goes on more than once
        try:
            outcome: Outcome = await around(context, following)
            if type(outcome) is not Outcome:
                _refuse_other_than_outcomes(layer, outcome, context)
        except Exception as error:
            recovered = recover(context, error)
            if recovered is None:
                raise

            outcome = recovered

        context._decided = outcome
        return outcome

    return step


def _refuse_other_than_outcomes(layer: Layer, value: Any, context: AfterSettle) -> None:
    if not (type(value) is list and isinstance(context, BatchContext)):
        raise PyStreamError(
            f"the layer {name_of(layer)} returned {type(value).__name__}; "
            "return an outcome, such as what call_next has returned"
        )
