"""`Context` and `BatchContext`: what the handler gets, as it may look at it."""

from __future__ import annotations

from pystream.context import BatchContext, Context
from pystream.parameters._kind import Getter, Parameter, Surroundings
from pystream.protocols import Delivery

__all__ = ["BatchContextKind", "ContextKind"]


class ContextKind:
    """A parameter annotated `Context`."""

    needs_context = True

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the annotation is `Context`."""
        return parameter.annotation is Context

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that hands over the context."""
        return _context


class BatchContextKind:
    """A parameter annotated `BatchContext`; only of a handler of batches."""

    needs_context = True

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the annotation is `BatchContext`."""
        return parameter.annotation is BatchContext

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that hands over the context."""
        return _context


def _context(delivery: Delivery, context: Context | None) -> Context | None:
    return context
