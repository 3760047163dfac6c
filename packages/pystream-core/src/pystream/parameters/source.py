"""What the source offers: a type of its own, or a marker in `Annotated`."""

from __future__ import annotations

from typing import Any

from pystream.context import Context
from pystream.errors import DecodeError
from pystream.parameters._kind import Getter, Parameter, Surroundings, Undecodable
from pystream.protocols import Delivery

__all__ = ["SourceKind"]


class SourceKind:
    """A parameter that stands in the source's own table."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the source knows the annotation, or a marker behind it."""
        return _offered(parameter, surroundings) is not None

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that asks the delivery through the source's own function."""
        offered = surroundings.source_parameters[_offered(parameter, surroundings)]

        def get(delivery: Delivery, context: Context | None) -> Any:
            try:
                return offered(delivery)
            except DecodeError as error:
                raise Undecodable(error) from None

        return get


def _offered(parameter: Parameter, surroundings: Surroundings) -> Any:
    for candidate in (*parameter.metadata, parameter.annotation):
        try:
            if candidate in surroundings.source_parameters:
                return candidate
        except TypeError:  # not hashable, so not in any table
            continue

    return None
