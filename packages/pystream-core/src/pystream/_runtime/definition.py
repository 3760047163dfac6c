"""What a service is made of, once its app has been declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pystream._runtime.registration import Registered
from pystream.layers import PublishLayer
from pystream.protocols import Broker


@dataclass(frozen=True, slots=True)
class MountedBroker:
    """One broker of an app, with the handlers mounted on it.

    Attributes:
        broker: Its configuration.
        label: What tells it from others of its type, or none.
        registered: The handlers; none of them for a broker that is only published to.
    """

    broker: Broker
    label: str | None
    registered: Sequence[Registered]

    @property
    def name(self) -> str:
        """How it is called in errors."""
        address = self.broker.describe()
        return f"{self.label} ({address})" if self.label else address


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything that a start of a service needs to know.

    Attributes:
        title: The service's name.
        version: The service's own version.
        brokers: In registration order.
        state: What `open_state` opens; only if `has_state`.
        has_state: Whether there is a state.
        hook_functions: A hook's name to the functions given to the app.
        plugins: The plugins, or none for those that are installed.
        publish_layers: Layers around what is sent outside of handlers.
        on_subscription_end: Whether the end of a stream stops the service.
        max_tracked: How many deliveries may have tasks running after their settlement.
        hook_timeout: Seconds for each step of stop hooks.
        shutdown_timeout: Seconds for deliveries in hand and tracked tasks, or none for no limit.
    """

    title: str
    version: str
    brokers: Sequence[MountedBroker]
    state: Any
    has_state: bool
    hook_functions: Mapping[str, Sequence[Callable[..., Any]]] = field(default_factory=dict)
    plugins: Sequence[object] | None = None
    publish_layers: Sequence[PublishLayer] = ()
    on_subscription_end: Literal["fail", "log"] = "fail"
    max_tracked: int = 1000
    hook_timeout: float = 10.0
    shutdown_timeout: float | None = None
