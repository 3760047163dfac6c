"""What every form has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from anyio.lowlevel import checkpoint

from pystream._runtime.intake import Intake
from pystream._runtime.starter import Start
from pystream.protocols import Delivery

__all__ = ["STREAK", "Died", "Form", "OnTheLoop", "checkpoint", "let_on"]

STREAK: Final = 64
"""So many deliveries in a row without a suspension, then a checkpoint: others run too."""

Died: TypeAlias = "Callable[[str, BaseException], None]"
"""Told of a worker, lane or thread that has ended by an exception: its name, and what was raised."""


def let_on(name: str, error: BaseException) -> None:
    """Raise the error again: the whole form ends with it."""
    raise error


class Form(Protocol):
    """Takes deliveries from an intake and starts the work on each."""

    async def open(self) -> None:
        """Make ready to run. `close` is called in any case.

        Raises:
            PyStreamError: It cannot be.
        """

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        """Return when the intake is closed and everything taken is handled.

        Cancel safety: a cancelled run cancels what is handled and gives the rest back.
        """

    def gave_up(self, delivery: Delivery) -> None:
        """Told that the delivery, which runs now, is left unsettled. Synchronous, where it runs."""

    def stopped(self) -> None:
        """Told that the intake was stopped. Synchronous; possibly more than once."""

    @property
    def running(self) -> Sequence[str]:
        """The names of the tracked calls on loops of the form's own that have not ended."""

    async def drained(self) -> None:
        """Return when there are none, after `run`. Cancel safety: cancelling it changes nothing."""

    async def close(self) -> None:
        """Cancel what still runs on loops of the form's own, and end these. Within a bound of its own."""


class OnTheLoop:
    """A form without threads and loops of its own: what concerns these does nothing."""

    running: Sequence[str] = ()

    async def open(self) -> None:
        """See `Form.open`."""

    def stopped(self) -> None:
        """See `Form.stopped`."""

    async def drained(self) -> None:
        """See `Form.drained`."""

    async def close(self) -> None:
        """See `Form.close`."""
