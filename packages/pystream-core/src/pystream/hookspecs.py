"""The hooks of a service: what a plugin may implement, and the events it is given.

A plugin is a module or an object whose functions carry the `hookimpl` marker. Each hook
takes one event, so that a later version can tell more without breaking anybody, and is a
`def` or an `async def`. A `def` runs on the service's loop and must not block it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import pluggy

from pystream.outcomes import Outcome

__all__ = [
    "PROJECT",
    "ServiceEvent",
    "Settled",
    "after_shutdown",
    "after_startup",
    "hookimpl",
    "hookspec",
    "on_shutdown",
    "on_startup",
    "post_settle",
]

PROJECT: Final = "pystream"
"""The name under which pluggy keeps the marks of these hooks."""

hookspec: Final = pluggy.HookspecMarker(PROJECT)
"""Marks a function of this module as the specification of a hook."""

hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook it is named after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEvent:
    """A service that starts or stops.

    Attributes:
        title: The title given to `PyStream`.
        version: The version given to `PyStream`.
        failure: Why the service stops, or none for a stop that was asked for. Always none
            while it starts.
    """

    title: str
    version: str
    failure: BaseException | None = None


class Settled(NamedTuple):
    """One delivery whose settlement was attempted.

    A named tuple, because it is made for every delivery and a frozen dataclass takes
    several times as long to make.

    Attributes:
        subscription: The subscription's name within the app.
        outcome: What became of it: what the handler or the failure policy decided, or, where no
            attempt was left, a dead letter or a drop.
        attempt: How often the delivery has been handed out, this time included, from 1.
        duration: From the arrival to the end of the settlement, in seconds.
        error: Why the settlement was not made, or none if it was.
    """

    subscription: str
    outcome: Outcome
    attempt: int
    duration: float
    error: Exception | None


@hookspec
def on_startup(event: ServiceEvent) -> None:
    """Called when the state is open and before the brokers connect. What it raises refuses the start."""


@hookspec
def after_startup(event: ServiceEvent) -> None:
    """Called when every subscription is open. What it raises refuses the start."""


@hookspec
def on_shutdown(event: ServiceEvent) -> None:
    """Called when a stop begins, with the brokers connected and deliveries still handled.

    What it raises is logged and stops neither the other hooks nor the shutdown.
    """


@hookspec
def after_shutdown(event: ServiceEvent) -> None:
    """Called when the brokers are closed and the state is still open.

    What it raises is logged and stops neither the other hooks nor the shutdown.
    """


@hookspec
def post_settle(event: Settled) -> None:
    """Called after each settlement attempt, at most once per delivery; not for one left unsettled.

    A `def` is called in line on the loop that handled the delivery; an `async def` becomes
    a task that the shutdown waits for. What it raises is logged.
    """
