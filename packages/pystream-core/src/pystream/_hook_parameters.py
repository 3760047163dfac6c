"""The parameters of a function given to an app for its start or stop, read and checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pystream._runtime.signature import read_parameters
from pystream.errors import ConfigurationError, RegistrationError
from pystream.parameters import Parameter, ParameterKind, Surroundings
from pystream.parameters.hook import HOOK_KINDS
from pystream.parameters.out import OutKind

__all__ = ["TAKES", "HookParameter", "read_hook_parameters"]

_WITHOUT_PUBLISHERS: Final = "the event (ServiceEvent) and State[T]"
_WITH_PUBLISHERS: Final = "the event (ServiceEvent), State[T] and Out[T]"
TAKES: Final = {
    "on_startup": _WITHOUT_PUBLISHERS,
    "after_startup": _WITH_PUBLISHERS,
    "on_shutdown": _WITH_PUBLISHERS,
    "after_shutdown": _WITHOUT_PUBLISHERS,
}
"""The hooks whose functions take parameters, and which."""

_NO_PUBLISHER: Final = {
    "on_startup": "on_startup runs before the brokers connect; use after_startup",
    "after_shutdown": "after_shutdown runs when the brokers are closed; use on_shutdown",
}


@dataclass(frozen=True, slots=True)
class HookParameter:
    """One parameter of a hook.

    Attributes:
        parameter: As it stands in the signature.
        kind: The kind that fills it.
        publishes: Whether it is a publisher.
    """

    parameter: Parameter
    kind: ParameterKind
    publishes: bool

    @property
    def broker(self) -> str | type | None:
        """Whose publisher: the label or class in `Annotated[Out[T], ...]`, or none for the app's one broker."""
        return next((item for item in self.parameter.metadata if isinstance(item, str | type)), None)


def read_hook_parameters(
    hook_name: str, fn: Callable[..., Any], name: str, *, has_state: bool
) -> tuple[HookParameter, ...]:
    """What the function asks for.

    Args:
        hook_name: One of `TAKES`.
        fn: The function.
        name: How it is called in messages.
        has_state: Whether the app has a state.

    Raises:
        RegistrationError: A parameter that this hook cannot be given.
    """
    surroundings = Surroundings(handler=name, source_parameters={}, has_state=has_state)
    return tuple(_read(hook_name, parameter, surroundings) for parameter in read_parameters(fn, name))


def _read(hook_name: str, parameter: Parameter, surroundings: Surroundings) -> HookParameter:
    name = surroundings.handler
    kind = next((kind for kind in HOOK_KINDS if kind.match(parameter, surroundings)), None)
    if kind is None:
        raise RegistrationError(
            f"{name}: the parameter {parameter.name!r} ({_shown(parameter.full_annotation)}) cannot be filled, "
            f"since {hook_name} is called for no delivery; it takes {TAKES[hook_name]}"
        )

    publishes = isinstance(kind, OutKind)
    if publishes and hook_name in _NO_PUBLISHER:
        raise RegistrationError(
            f"{name}: the parameter {parameter.name!r} asks for a publisher, and {_NO_PUBLISHER[hook_name]}"
        )

    try:
        kind.compile(parameter, surroundings)
    except RegistrationError:
        raise
    except ConfigurationError as error:
        raise RegistrationError(f"{name}: the parameter {parameter.name!r}: {error}") from error

    return HookParameter(parameter, kind, publishes)


def _shown(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
