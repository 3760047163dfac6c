"""What a function for a start or a stop may ask for: the event, and what needs no delivery."""

from __future__ import annotations

from typing import Any

from pystream._callables import accepts
from pystream.context import Context
from pystream.hookspecs import ServiceEvent
from pystream.parameters._kind import Getter, Parameter, ParameterKind, Surroundings
from pystream.parameters.out import OutKind
from pystream.parameters.state import StateKind

__all__ = ["HOOK_KINDS", "EventKind"]


class EventKind:
    """A parameter annotated `ServiceEvent`; its getter is called with the event in place of a delivery."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the annotation is `ServiceEvent`, or a union that has it."""
        return accepts(parameter.annotation, ServiceEvent)

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that hands over the event."""
        return _event


def _event(event: Any, context: Context | None) -> Any:
    return event


HOOK_KINDS: tuple[ParameterKind, ...] = (StateKind(), OutKind(), EventKind())
"""In order; what none of them claims, a hook cannot be given."""
