"""Broken forms on one loop."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import anyio
from pystream._runtime.forms import Form, lanes
from pystream._runtime.forms.lanes import Lanes
from pystream._runtime.forms.pool import Pool
from pystream._runtime.forms.sequential import Sequential
from pystream._runtime.intake import Intake
from pystream._runtime.starter import Start
from pystream.protocols import GAP, Delivery

from tests.core.model.fault import Fault, acknowledging_first, nothing
from tests.core.model.schedules import Key

__all__ = ["LOOP_FAULTS"]

_NAME = "orders"


# The default form.


class TakesAhead(Sequential):
    """Does not wait for the end of what it has begun."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        async with anyio.create_task_group() as tasks:
            while intake.open:
                delivery = intake.take()
                if delivery is None or delivery is GAP:
                    await intake.wait()
                    continue

                rest = start(delivery)
                if rest is not None:
                    tasks.start_soon(_await, rest)


async def _await(rest: Awaitable[None]) -> None:
    await rest


class DropsWhatItHolds(Sequential):
    """Looks whether it was stopped between the take and the start."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        while True:
            delivery = intake.take()
            if not intake.open:
                return

            if delivery is None or delivery is GAP:
                await intake.wait()
                continue

            await (start(delivery) or nothing())


class TakesOnceMore(Sequential):
    """Handles one more delivery before it obeys a stop."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        await super().run(intake, start)
        delivery = intake.take()
        if delivery is not None and delivery is not GAP:
            await (start(delivery) or nothing())


def _releasing_last(start: Start[Any]) -> Start[Any]:
    def late(delivery: Any) -> Awaitable[None] | None:
        rest = start(delivery)
        if rest is None:
            delivery.release()
            return None

        return _then(rest, delivery.release)

    return late


async def _then(rest: Awaitable[None], call: Callable[[], object]) -> None:
    await rest
    call()


def _settling_twice(start: Start[Any]) -> Start[Any]:
    def twice(delivery: Any) -> Awaitable[None] | None:
        ack = delivery.ack

        async def again() -> None:
            await ack()
            await ack()

        delivery.ack = again
        return start(delivery)

    return twice


def _handling_twice(start: Start[Any]) -> Start[Any]:
    def twice(delivery: Any) -> Awaitable[None] | None:
        rest = start(delivery)
        return start(delivery) if rest is None else rest

    return twice


# Workers.


class WakesNobody(Pool):
    """A worker that suspends wakes no other."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        self._intake = intake
        await super().run(intake, start)

    def _wake_one(self) -> None:
        if not self._intake.open:
            super()._wake_one()


class WakesNobodyAtTheEnd(WakesNobody):
    """A worker that sees the end does not tell the one that sleeps."""

    def _wake_one(self) -> None:
        if self._intake.open:
            Pool._wake_one(self)


class TakesWithoutAWorker(Pool):
    """The stream is polled while every worker is busy."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        free = anyio.Semaphore(self._size)

        async def work(delivery: Delivery) -> None:
            async with free:
                await (start(delivery) or nothing())

        async with anyio.create_task_group() as tasks:
            while intake.open:
                delivery = intake.take()
                if delivery is None or delivery is GAP:
                    await intake.wait()
                    continue

                tasks.start_soon(work, delivery)


# Lanes.


class DoesNotWaitForTheLane(Lanes):
    async def _wait_for(self, lane: Any, delivery: Delivery) -> None:
        pass


class NeverGetsRoom(Lanes):
    """Nobody wakes the loop that waits for a lane."""

    async def _wait_for(self, lane: Any, delivery: Delivery) -> None:
        self._wanted = lane
        self._wanted = None
        await anyio.sleep_forever()


class LeavesTheLaneAtAStop(Lanes):
    """A stop ends the wait for a lane, and what the wait was for is forgotten."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        self._intake = intake
        stop = Intake.stop

        def stop_and_wake(stopped: Intake) -> None:
            stop(stopped)
            self._room.wake()

        with mock.patch.object(Intake, "stop", new=stop_and_wake):
            await super().run(intake, start)

    async def _wait_for(self, lane: Any, delivery: Delivery) -> None:
        self._wanted = lane
        while len(lane.deliveries) == lanes._ROOM and not lane.broken:
            await self._room.wait()
            if not self._intake.open:
                lane.broken = True
                delivery.release = _forget  # type: ignore[method-assign]  # the fault

        self._wanted = None


def _forget() -> None:
    pass


class ForgetsItsHandWhenCancelled(Lanes):
    """A cancelled wait for a lane does not give back what the wait was for."""

    async def _wait_for(self, lane: Any, delivery: Delivery) -> None:
        self._wanted = lane
        while len(lane.deliveries) == lanes._ROOM and not lane.broken:
            await self._room.wait()

        self._wanted = None


class GoesToARandomLane(Lanes):
    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        take, chance = intake.take, random.Random(1)

        def shuffled() -> Any:
            delivery: Any = take()
            if delivery is not None and delivery is not GAP:
                delivery.lane_key = Key(chance.choice("abcdef"))

            return delivery

        intake.take = shuffled
        await super().run(intake, start)


class LetsOthersOvertake(Lanes):
    """A delivery that is left unsettled does not end its lane."""

    def gave_up(self, delivery: Delivery) -> None:
        pass


class _ForgetsItsInbox(lanes._Lane):
    __slots__ = ()

    def give_back(self) -> None:
        self.deliveries.clear()


@contextmanager
def _room(places: int) -> Iterator[None]:
    with mock.patch.object(lanes, "_ROOM", places):
        yield


def _starting(wrap: Callable[[Start[Any]], Start[Any]]) -> Form:
    """The default form, whose deliveries are started in another way."""

    class Wrapped(Sequential):
        async def run(self, intake: Intake, start: Start[Delivery]) -> None:
            await super().run(intake, wrap(start))

    return Wrapped()


def _by_key(size: int) -> Form:
    return Lanes(size, _NAME)


_DEFAULT, _WORKERS, _BY_KEY = "default", "workers=n", "workers=by_key(n)"

LOOP_FAULTS = {
    "takes the next before the end of the last": Fault(_DEFAULT, "bound kept", lambda n: TakesAhead()),
    "drops what it holds at a stop": Fault(_DEFAULT, "stop", lambda n: DropsWhatItHolds()),
    "takes one more after a stop": Fault(_DEFAULT, "stop", lambda n: TakesOnceMore()),
    "acknowledges before the handler": Fault(_DEFAULT, "handled first", lambda n: _starting(acknowledging_first)),
    "releases what it settled": Fault(_DEFAULT, "once", lambda n: _starting(_releasing_last)),
    "settles twice": Fault(_DEFAULT, "once", lambda n: _starting(_settling_twice)),
    "handles twice": Fault(_DEFAULT, "once", lambda n: _starting(_handling_twice)),
    "wakes no worker when another suspends": Fault(_WORKERS, "bound reached", lambda n: WakesNobody(n, _NAME)),
    "does not tell a sleeping worker of the end": Fault(_WORKERS, "end", lambda n: WakesNobodyAtTheEnd(n, _NAME)),
    "polls without a free worker": Fault(_WORKERS, "bound kept", lambda n: TakesWithoutAWorker(n, _NAME)),
    "lacks a worker": Fault(_WORKERS, "bound reached", lambda n: Pool(n - 1, _NAME)),
    "has a worker too many": Fault(_WORKERS, "bound kept", lambda n: Pool(n + 1, _NAME)),
    "does not wait for the lane": Fault(_BY_KEY, "bound kept", lambda n: DoesNotWaitForTheLane(n, _NAME)),
    "never gets room in a lane": Fault(_BY_KEY, "bound reached", lambda n: NeverGetsRoom(n, _NAME)),
    "leaves the lane at a stop": Fault(_BY_KEY, "drain", lambda n: LeavesTheLaneAtAStop(n, _NAME)),
    "a cancelled loop forgets its hand": Fault(_BY_KEY, "drain", lambda n: ForgetsItsHandWhenCancelled(n, _NAME)),
    "sends a key to a random lane": Fault(_BY_KEY, "order", lambda n: GoesToARandomLane(n, _NAME)),
    "lets others overtake what was given back": Fault(_BY_KEY, "order", lambda n: LetsOthersOvertake(n, _NAME)),
    "has three places in a lane": Fault(_BY_KEY, "bound kept", _by_key, lambda: _room(3)),
    "has one place in a lane": Fault(_BY_KEY, "bound reached", _by_key, lambda: _room(1)),
    "drops what waits in a lane": Fault(
        _BY_KEY, "drain", _by_key, lambda: mock.patch.object(lanes, "_Lane", _ForgetsItsInbox)
    ),
}
