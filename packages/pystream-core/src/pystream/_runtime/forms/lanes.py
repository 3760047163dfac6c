"""`workers=by_key(n)`: n lanes; the deliveries of one key run one after the other.

A lane holds the delivery it runs and one more. The loop, with one delivery in its hand,
waits for the lane which that delivery needs, and takes nothing else meanwhile.
"""

from __future__ import annotations

from collections import deque

import anyio

from pystream._runtime.forms._form import Died, OnTheLoop, let_on
from pystream._runtime.intake import Intake
from pystream._runtime.shelter import Shelter
from pystream._runtime.starter import Start
from pystream.protocols import GAP, Delivery
from pystream.signal import Signal

_ROOM = 2  # the one that runs, from the moment it is handed over, and the one that waits


class _Lane:
    """One lane's deliveries; the first is the one that runs."""

    __slots__ = ("broken", "closed", "deliveries", "signal")

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()
        self.signal = Signal()
        self.closed = False
        self.broken = False

    def give_back(self) -> None:
        """Release what was not run."""
        while self.deliveries:
            self.deliveries.popleft().release()


class Lanes(OnTheLoop):
    """At most 2n + 1 deliveries in hand; order per key.

    Args:
        size: How many lanes, 2 or more.
        name: The subscription's; the lanes are named after it and their index.
        died: Told of a lane that has ended by an exception; the others go on.
    """

    def __init__(self, size: int, name: str, died: Died = let_on) -> None:
        self._name = name
        self._died = died
        self._lanes = [_Lane() for _ in range(size)]
        self._next = 0
        self._wanted: _Lane | None = None
        self._room = Signal()

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        """See `Form.run`."""
        async with anyio.create_task_group() as lanes:
            for index, lane in enumerate(self._lanes):
                name = f"{self._name} lane {index}"
                lanes.start_soon(self._live, name, lane, intake, start, name=name)

            await self._distribute(intake)
            for lane in self._lanes:
                lane.closed = True
                lane.signal.wake()

    def gave_up(self, delivery: Delivery) -> None:
        """What waits behind the delivery in its lane must not overtake it: the lane ends."""
        for lane in self._lanes:
            if lane.deliveries and lane.deliveries[0] is delivery:
                lane.broken = True

    async def _distribute(self, intake: Intake) -> None:
        while intake.open:
            delivery = intake.take()
            if delivery is None:
                await intake.wait()
                continue

            if delivery is GAP:
                continue

            key = delivery.lane_key
            lane = self._lane_with_room() if key is None else self._lanes[hash(key) % len(self._lanes)]
            if len(lane.deliveries) == _ROOM and not lane.broken:
                await self._wait_for(lane, delivery)

            if lane.broken:
                delivery.release()
                continue

            lane.deliveries.append(delivery)
            if len(lane.deliveries) == 1:
                lane.signal.wake()

    def _lane_with_room(self) -> _Lane:
        """The next lane in rotation that has room; the next one if none has."""
        size = len(self._lanes)
        for step in range(size):
            index = (self._next + step) % size
            if len(self._lanes[index].deliveries) < _ROOM:
                break
        else:
            index = self._next

        self._next = (index + 1) % size
        return self._lanes[index]

    async def _wait_for(self, lane: _Lane, delivery: Delivery) -> None:
        """Wait for room in this very lane; a stop does not end it, since the delivery is in hand."""
        self._wanted = lane
        try:
            while len(lane.deliveries) == _ROOM and not lane.broken:
                await self._room.wait()
        except BaseException:
            delivery.release()
            raise
        finally:
            self._wanted = None

    async def _live(self, name: str, lane: _Lane, intake: Intake, start: Start[Delivery]) -> None:
        try:
            with Shelter(intake):
                await self._serve(lane, intake, start)
        except Exception as error:  # no failure of a handler: those are the pipeline's affair
            self._died(name, error)
        finally:
            lane.broken = True
            lane.give_back()  # without effect on the first one, if it has run
            if self._wanted is lane:
                self._room.wake()

    async def _serve(self, lane: _Lane, intake: Intake, start: Start[Delivery]) -> None:
        deliveries = lane.deliveries
        while not lane.broken and not intake.cancelled:
            if not deliveries:
                if lane.closed:
                    return

                await lane.signal.wait()
                continue

            rest = start(deliveries[0])
            if rest is not None:
                await rest

            deliveries.popleft()
            if self._wanted is lane:
                self._room.wake()
