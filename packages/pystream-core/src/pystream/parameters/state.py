"""`State[T]`: what the app opened at its start."""

from __future__ import annotations

from typing import Any

from pystream.context import Context, StateMarker
from pystream.errors import RegistrationError
from pystream.parameters._kind import MISSING, Getter, Parameter, Surroundings
from pystream.protocols import Delivery

__all__ = ["StateKind"]


class StateKind:
    """A parameter annotated `State[T]`."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether the annotation carries the mark of `State`."""
        return StateMarker in parameter.metadata

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that hands over the one object.

        Raises:
            RegistrationError: The app has no state, or one of another class.
        """
        if not surroundings.has_state:
            raise RegistrationError(
                f"{surroundings.handler}: the parameter {parameter.name!r} asks for the app's state, "
                "and the app has none; give PyStream(state=...)"
            )

        state = surroundings.state
        wanted = parameter.annotation
        if state is not MISSING and type(wanted) is type and not isinstance(state, wanted):
            raise RegistrationError(
                f"{surroundings.handler}: the parameter {parameter.name!r} asks for State[{wanted.__name__}], "
                f"and the app's state is a {type(state).__name__}"
            )

        def get(delivery: Delivery, context: Context | None) -> Any:
            return state

        return get
