"""`Router`: handlers of one module, gathered, with a failure policy and layers of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pystream.errors import RegistrationError
from pystream.failures import FailurePolicy
from pystream.layers import Layer, PublishLayer, check_layers
from pystream.subscriber import Mount, declaration, handler_name, mount

__all__ = ["Mountable", "Router", "as_mount"]

Mountable: TypeAlias = "Callable[..., Any] | Mount"
"""A declared handler, or what `mount` made of one."""


class Router:
    """A list of handlers to be mounted together: `app.with_broker(broker, router)`.

    Args:
        on_failure: The policy of its handlers that state none.
        layers: Consume layers around each of its handlers, within those of the app.
        publish_layers: Layers around everything that is sent for its handlers, within those of the app.

    Raises:
        ConfigurationError: Something among the layers is none.
    """

    def __init__(
        self,
        *,
        on_failure: FailurePolicy | None = None,
        layers: Sequence[Layer] | None = None,
        publish_layers: Sequence[PublishLayer] | None = None,
    ) -> None:
        self.on_failure = on_failure
        self.layers: tuple[Layer, ...] = check_layers("Router", "layers", layers)
        self.publish_layers: tuple[PublishLayer, ...] = check_layers("Router", "publish_layers", publish_layers)
        self._mounts: list[Mount] = []

    def include(self, *handlers: Mountable) -> Router:
        """Add declared handlers and `mount(...)` values, and return the router.

        Raises:
            RegistrationError: Something else was given, a router among it: routers do not nest yet.
        """
        self._mounts.extend([as_mount(handler) for handler in handlers])
        return self

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What was included, in order."""
        return tuple(self._mounts)


def as_mount(handler: Any) -> Mount:
    """A `Mount` of whatever may be mounted.

    Raises:
        RegistrationError: It is neither a declared handler nor a `Mount`.
    """
    if isinstance(handler, Mount):
        return handler

    if isinstance(handler, Router):
        raise RegistrationError("a Router in a Router is not there yet; give both to with_broker")

    if declaration(handler) is None:
        name = handler_name(handler) if callable(handler) else repr(handler)
        raise RegistrationError(f"{name} is no handler: decorate it with @subscriber(...), or wrap it in mount(...)")

    return mount(handler)
