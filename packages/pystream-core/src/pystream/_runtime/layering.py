"""Consume layers, put together once per mount."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pystream._callables import name_of
from pystream.context import AfterSettle
from pystream.errors import PyStreamError
from pystream.layers import Layer
from pystream.outcomes import Outcome

ContextT = TypeVar("ContextT", bound=AfterSettle)
Step = Callable[[ContextT], Awaitable[Outcome]]


def chain_of(layers: Sequence[Layer], innermost: Step[ContextT]) -> Step[ContextT]:
    """The function that goes through the layers, the first one outermost, to `innermost`.

    Each step notes in the context what it has decided, as `innermost` does, so that a layer
    which raises after that changes nothing.
    """
    step = innermost
    for layer in reversed(layers):
        step = _around(layer, step)

    return step


def _around(layer: Layer, following: Step[ContextT]) -> Step[ContextT]:
    async def step(context: ContextT) -> Outcome:
        outcome = await layer(context, following)
        if type(outcome) is not Outcome:
            raise PyStreamError(
                f"the layer {name_of(layer)} returned {type(outcome).__name__}; "
                "return an outcome, such as what call_next has returned"
            )

        context._decided = outcome
        return outcome

    return step
