"""`Health`: how a service is, as seen from outside."""

from __future__ import annotations

import enum
from collections.abc import Callable

import anyio

__all__ = ["Health", "ServiceState"]


class ServiceState(enum.Enum):
    """The states of a service."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    SHUTTING_DOWN = "shutting down"
    STOPPED = "stopped"
    FAILED = "failed"


class Health:
    """A view of a service's condition; outlives its shutdown.

    Reading it costs attribute look-ups; a reference to it is all there is to copy.
    """

    def __init__(self) -> None:
        self._phase = ServiceState.STARTING
        self._reason: str | None = None
        self._troubles: dict[str, str] = {}
        self._open: set[str] = set()
        self._started: set[str] = set()
        self._failures: list[Callable[[], int]] = []
        self._changed = anyio.Event()

    @property
    def state(self) -> ServiceState:
        """DEGRADED is a running service of which some subscription is in trouble."""
        if self._phase is ServiceState.RUNNING and self._troubles:
            return ServiceState.DEGRADED

        return self._phase

    @property
    def reason(self) -> str | None:
        """Why the service is degraded or failed, or none."""
        if self._reason is not None:
            return self._reason

        return "; ".join(f"{name}: {trouble}" for name, trouble in self._troubles.items()) or None

    @property
    def started(self) -> frozenset[str]:
        """The subscriptions that were opened."""
        return frozenset(self._started)

    @property
    def active(self) -> frozenset[str]:
        """The subscriptions whose loops run now."""
        return frozenset(self._open)

    @property
    def settlement_failures(self) -> int:
        """How many settlements have failed since the start, over all subscriptions."""
        return sum(count() for count in self._failures)

    async def changed(self) -> None:
        """Return at the next change of the state, the reason or the subscriptions.

        Cancel safety: cancelling it changes nothing.
        """
        await self._changed.wait()

    def __repr__(self) -> str:
        reason = f", reason={self.reason!r}" if self.reason else ""
        return f"Health({self.state.name}{reason}, active={len(self._open)}, started={len(self._started)})"


class HealthBoard:
    """Writes a `Health`; the runtime's side of it."""

    def __init__(self) -> None:
        self.view: Health = Health()

    def phase(self, state: ServiceState, reason: str | None = None) -> None:
        """The service has entered a state."""
        self.view._phase = state
        self.view._reason = reason
        self._notify()

    @property
    def stopping(self) -> bool:
        """Whether a stop was announced."""
        return self.view._phase not in (ServiceState.STARTING, ServiceState.RUNNING)

    def trouble(self, subscription: str, reason: str | None) -> None:
        """A subscription is in trouble, or no longer (none)."""
        if reason is None:
            self.view._troubles.pop(subscription, None)
        else:
            self.view._troubles[subscription] = reason

        self._notify()

    def opened(self, subscription: str, settlement_failures: Callable[[], int]) -> None:
        """A subscription was opened and its loop is about to run."""
        self.view._open.add(subscription)
        self.view._started.add(subscription)
        self.view._failures.append(settlement_failures)
        self._notify()

    def ended(self, subscription: str) -> None:
        """A subscription's loop has ended."""
        self.view._open.discard(subscription)
        self.view._troubles.pop(subscription, None)
        self._notify()

    def _notify(self) -> None:
        changed, self.view._changed = self.view._changed, anyio.Event()
        changed.set()
