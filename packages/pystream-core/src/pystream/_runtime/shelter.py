"""What a cancelled handler gets: one cancellation, and then a second in which to end.

anyio cancels a task again at each of its awaits, so a `finally` that awaits something - a
publish, a rollback - would be cut short at once. When the time for a stop is spent, each
worker is told once; from then on its own scope shields it, until the second is over.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Final, Protocol

import anyio

__all__ = ["CANCELLED_BOUND", "Shelter", "present_shelter"]

CANCELLED_BOUND: Final = 1.0
"""Seconds that what was cancelled has to end."""


class Cancellable(Protocol):
    """What knows whether the work in hand is being cancelled."""

    @property
    def cancelled(self) -> bool:
        """Whether it is."""


class Shelter:
    """A worker's own scope; entered once, around all of its deliveries.

    Args:
        work: Says when the worker is being cancelled; a cancellation before that is the handler's own affair.

    Attributes:
        work: As given.
    """

    __slots__ = ("_scope", "work")

    def __init__(self, work: Cancellable) -> None:
        self.work = work
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.__enter__()
        _PRESENT.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._scope.__exit__(kind, error, traceback)

    def spare(self) -> None:
        """The worker was told of its cancellation: from now on only time cuts it short."""
        if not self._scope.shield:
            self._scope.deadline = anyio.current_time() + CANCELLED_BOUND
            self._scope.shield = True


_PRESENT: ContextVar[Shelter | None] = ContextVar("pystream_shelter", default=None)


def present_shelter() -> Shelter | None:
    """The shelter of the worker that runs in this task, or none."""
    return _PRESENT.get()
