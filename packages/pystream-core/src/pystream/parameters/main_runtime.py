"""`MainRuntime`: the app's own event loop, from wherever the handler runs."""

from __future__ import annotations

from pystream.context import Context
from pystream.main_runtime import MainRuntime
from pystream.parameters._kind import Getter, Parameter, Surroundings
from pystream.protocols import Delivery

__all__ = ["MainRuntimeKind"]


class MainRuntimeKind:
    """A parameter annotated `MainRuntime`."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the annotation is `MainRuntime`."""
        return parameter.annotation is MainRuntime

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that hands over the app's one."""
        main = surroundings.main

        def get(delivery: Delivery, context: Context | None) -> MainRuntime | None:
            return main

        return get
