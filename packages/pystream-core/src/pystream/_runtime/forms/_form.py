"""What every form has in common."""

from __future__ import annotations

from typing import Final, Protocol

from anyio.lowlevel import checkpoint

from pystream._runtime.intake import Intake
from pystream._runtime.starter import Start
from pystream.protocols import Delivery

__all__ = ["STREAK", "Form", "checkpoint"]

STREAK: Final = 64
"""So many deliveries in a row without a suspension, then a checkpoint: others run too."""


class Form(Protocol):
    """Takes deliveries from an intake and starts the work on each."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        """Return when the intake is closed and everything taken is handled.

        Cancel safety: a cancelled run cancels what is handled and gives the rest back.
        """

    def gave_up(self, delivery: Delivery) -> None:
        """Told that the delivery, which runs now, is left unsettled. Synchronous."""
