"""What every kind of parameter has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from pystream.context import Context
    from pystream.layers import PublishLayer
    from pystream.main_runtime import MainRuntime
    from pystream.protocols import ConnectedBroker, Delivery, SourceParameters

__all__ = ["MISSING", "Getter", "Parameter", "ParameterKind", "Surroundings", "Undecodable"]

Getter: TypeAlias = "Callable[[Delivery, Context | None], Any]"
"""The value of one parameter for one delivery. The context is there if some kind needs it."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""A parameter without a default, and an app without state."""


class Undecodable(Exception):
    """Raised by a getter when the message, and not the handler, is at fault.

    Attributes:
        error: What could not be read; its text shows no part of a payload.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(error)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a handler, its annotation resolved.

    Attributes:
        name: The name in the signature.
        annotation: The type, without `Annotated`.
        metadata: What stood behind the type in `Annotated`.
        default: The default value, or `MISSING`.
        keyword: Whether it must be handed over by name.
    """

    name: str
    annotation: Any
    metadata: tuple[Any, ...] = ()
    default: Any = MISSING
    keyword: bool = False

    @property
    def full_annotation(self) -> Any:
        """The annotation with its metadata, as it was written."""
        if not self.metadata:
            return self.annotation

        from typing import Annotated

        return Annotated[self.annotation, *self.metadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a getter is compiled for.

    Attributes:
        handler: The handler's name, for error messages.
        source_parameters: What the source offers.
        has_state: Whether the app has a state.
        state: The opened state; `MISSING` until the service starts.
        broker: The connected broker; none until the service starts.
        publish_layers: Layers around what the handler's publishers send.
        main: The app's own loop; none until the service starts.
    """

    handler: str
    source_parameters: SourceParameters
    has_state: bool = False
    state: Any = MISSING
    broker: ConnectedBroker | None = None
    publish_layers: Sequence[PublishLayer] = ()
    main: MainRuntime | None = None


class ParameterKind(Protocol):
    """One row of the table."""

    @property
    def needs_context(self) -> bool:
        """Whether its getters look at the context, which is then made for each delivery."""

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether this kind is meant by the parameter."""

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """The getter; called at registration to refuse early, and again at each start.

        Raises:
            RegistrationError: The parameter cannot work, with a sentence that names it.
        """
