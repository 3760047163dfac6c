"""`workers=n`: n tasks, of which at most one waits for the stream.

A free worker takes from the stream itself. One whose delivery suspends wakes a sleeping
worker, which takes in its place; so a burst of deliveries that never suspend is handled by
one task without a single wake-up, and nothing is taken without a free worker. While a
worker sleeps, another one waits for the stream or is about to take from it.
"""

from __future__ import annotations

import anyio

from pystream._runtime.forms._form import STREAK, Died, OnTheLoop, checkpoint, let_on
from pystream._runtime.intake import Intake
from pystream._runtime.shelter import Shelter
from pystream._runtime.starter import Start
from pystream.protocols import GAP, Delivery
from pystream.signal import Signal


class Pool(OnTheLoop):
    """At most n deliveries in hand; no order.

    Args:
        size: How many workers, 2 or more.
        name: The subscription's; the workers are named after it and their index.
        died: Told of a worker that has ended by an exception; the others go on.
    """

    def __init__(self, size: int, name: str, died: Died = let_on) -> None:
        self._size = size
        self._name = name
        self._died = died
        self._sleeping: list[Signal] = []
        self._someone_waits = False

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        """See `Form.run`."""
        async with anyio.create_task_group() as workers:
            for index in range(self._size):
                name = f"{self._name} worker {index}"
                workers.start_soon(self._live, name, intake, start, name=name)

    def gave_up(self, delivery: Delivery) -> None:
        """There is no order, so nothing follows the delivery."""

    async def _live(self, name: str, intake: Intake, start: Start[Delivery]) -> None:
        try:
            await self._work(intake, start)
        except Exception as error:  # no failure of a handler: those are the pipeline's affair
            self._died(name, error)
        finally:
            self._wake_one()  # so that the next one sees the end, too, or works in its place

    async def _work(self, intake: Intake, start: Start[Delivery]) -> None:
        with Shelter(intake):
            await self._serve(intake, start)

    async def _serve(self, intake: Intake, start: Start[Delivery]) -> None:
        bed = Signal()
        streak = 0
        while intake.open:
            delivery = intake.take()
            if delivery is None:
                await (self._sleep(bed) if self._someone_waits else self._wait(intake))
                continue

            if delivery is GAP:
                continue

            try:
                rest = start(delivery)
                if rest is not None:
                    self._wake_one()
                    await rest
                    streak = 0
                    continue
            except Exception:
                delivery.release()
                raise

            streak += 1
            if streak == STREAK:
                streak = 0
                await checkpoint()

    async def _wait(self, intake: Intake) -> None:
        self._someone_waits = True
        try:
            await intake.wait()
        finally:
            self._someone_waits = False

    async def _sleep(self, bed: Signal) -> None:
        self._sleeping.append(bed)
        try:
            await bed.wait()
        finally:
            if bed in self._sleeping:
                self._sleeping.remove(bed)

    def _wake_one(self) -> None:
        if self._sleeping:
            self._sleeping.pop().wake()
