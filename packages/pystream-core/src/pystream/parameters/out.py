"""`Out[T]`: a live publisher of the broker the handler is mounted on."""

from __future__ import annotations

from typing import get_args, get_origin

from pystream.context import Context
from pystream.layers import with_layers
from pystream.parameters._kind import Getter, Parameter, Surroundings
from pystream.protocols import Delivery
from pystream.publishing import Out

__all__ = ["OutKind"]


class OutKind:
    """A parameter annotated `Out[T]` or `Out`."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the annotation is `Out`, with or without a type."""
        return parameter.annotation is Out or get_origin(parameter.annotation) is Out

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that hands over one publisher, made once per mount."""
        broker = surroundings.broker
        publisher = with_layers(broker.publisher(), surroundings.publish_layers) if broker else None
        out: Out[object] = Out(publisher, *get_args(parameter.annotation))

        def get(delivery: Delivery, context: Context | None) -> Out[object]:
            return out

        return get
