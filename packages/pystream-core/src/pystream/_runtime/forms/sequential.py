"""The default form: one task does every step, and takes the next after the settlement."""

from __future__ import annotations

from pystream._runtime.forms._form import STREAK, OnTheLoop, checkpoint
from pystream._runtime.intake import Intake
from pystream._runtime.shelter import Shelter
from pystream._runtime.starter import Start
from pystream.protocols import GAP, Delivery


class Sequential(OnTheLoop):
    """At most one delivery in hand; stream order."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        """See `Form.run`."""
        with Shelter(intake):
            await self._serve(intake, start)

    async def _serve(self, intake: Intake, start: Start[Delivery]) -> None:
        streak = 0
        while intake.open:
            delivery = intake.take()
            if delivery is None:
                await intake.wait()
                continue

            if delivery is GAP:
                continue

            rest = start(delivery)
            if rest is not None:
                await rest
                streak = 0
                continue

            streak += 1
            if streak == STREAK:
                streak = 0
                await checkpoint()

    def gave_up(self, delivery: Delivery) -> None:
        """Nothing follows the delivery in hand."""
