"""`threads=n` and `threads=by_key(n)`: threads with loops of their own, fed from the app's.

One feeder, on the app's loop, fills n rings of eight slots. Without keys it picks a ring with
room before it takes anything; with keys it takes first, and waits for the ring of that key
with the delivery in its hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from pystream._runtime.dedicated import DedicatedThread, ThreadSide, Work, abandon_late
from pystream._runtime.forms._form import STREAK, Died, checkpoint
from pystream._runtime.forms._ring import Bell, Ring
from pystream._runtime.intake import Intake
from pystream._runtime.shelter import Shelter
from pystream._runtime.starter import Start
from pystream.protocols import GAP, Delivery

Compile: TypeAlias = "Callable[[ThreadSide], Start[Delivery]]"
"""Makes what starts the work on a delivery on one thread; called there."""


class Threads:
    """At most 9n deliveries in hand, one more with keys; order per key, or with a single thread.

    Everything belongs to the app's loop, but for `gave_up`.

    Args:
        size: How many threads, 1 or more.
        name: The subscription's; the threads are named after it and their index.
        keyed: Whether deliveries of one key go to one thread.
        compiled: Called once on each thread's loop.
        max_tracked: How many deliveries may have tasks running after their settlement, on each thread.
        died: Told of a thread whose work has raised.
    """

    def __init__(self, size: int, name: str, *, keyed: bool, compiled: Compile, max_tracked: int, died: Died) -> None:
        self._keyed = keyed
        self._ordered = keyed or size == 1
        self._bell = Bell()
        self._rings = [Ring(self._bell) for _ in range(size)]
        self._threads = []
        for index, ring in enumerate(self._rings):
            thread = f"{name} thread {index}"
            prepare = partial(_prepare, compiled, ring)
            self._threads.append(DedicatedThread(thread, prepare, max_tracked=max_tracked, died=partial(died, thread)))

        self._started: list[DedicatedThread] = []
        self._next = 0

    async def open(self) -> None:
        """See `Form.open`."""
        for thread in self._threads:
            self._started.append(thread)
            await thread.open()

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        """See `Form.run`; `start` is not used, since each thread has compiled its own."""
        try:
            await self._feed(intake)
            self.stopped()  # also where the stream has ended by itself
            for ring in self._rings:
                ring.close()

            for thread in self._threads:
                await thread.handled.wait()
        except BaseException:
            await self._cancel_work()
            raise

    def gave_up(self, delivery: Delivery) -> None:
        """What waits behind the delivery in an ordered ring must not overtake it. On its own thread."""
        if not self._ordered:
            return

        for ring in self._rings:
            if ring.hand is delivery:
                ring.broken = True

    def stopped(self) -> None:
        """See `Form.stopped`."""
        self._bell.signal.wake()
        for thread in self._threads:
            thread.post(lambda side: side.pauses.stop())

    @property
    def running(self) -> Sequence[str]:
        """See `Form.running`."""
        return [name for thread in self._threads for name in thread.running]

    async def drained(self) -> None:
        """See `Form.drained`."""
        for thread in self._threads:
            if not thread.abandoned:
                await thread.drained.wait()

    async def close(self) -> None:
        """See `Form.close`."""
        for thread in self._started:
            thread.cancel()

        await abandon_late(self._started, lambda thread: thread.ended)

    async def _cancel_work(self) -> None:
        for ring, thread in zip(self._rings, self._threads, strict=True):
            ring.cancelled = True
            thread.cancel_work()

        await abandon_late(self._threads, lambda thread: thread.handled)
        for ring in self._rings:
            ring.end()  # of an abandoned thread also what it has in hand; without effect on the others

    async def _feed(self, intake: Intake) -> None:
        streak = 0
        while intake.open:
            free = self._free()
            if free is None and not self._keyed:
                if self._all_ended:
                    return

                await self._wait_for_any(intake)
                streak = 0
                continue

            delivery = intake.take()
            if delivery is None:
                await intake.wait()
                streak = 0
                continue

            if delivery is GAP:
                continue

            ring = self._ring_of(delivery, free)
            if ring.full:
                await self._wait_for(ring, delivery)
                streak = 0

            ring.put(delivery)
            streak += 1
            if streak == STREAK:
                streak = 0
                await checkpoint()

    @property
    def _all_ended(self) -> bool:
        return all(ring.ended for ring in self._rings)

    def _free(self) -> int | None:
        """The next ring in rotation that has room, or none."""
        size = len(self._rings)
        for step in range(size):
            index = (self._next + step) % size
            if self._rings[index].has_room:
                return index

        return None

    def _ring_of(self, delivery: Delivery, free: int | None) -> Ring:
        """The ring of the delivery's key; without one the free ring, or the next in turn."""
        key = delivery.lane_key if self._keyed else None
        if key is not None:
            return self._rings[hash(key) % len(self._rings)]

        index = self._next if free is None else free
        self._next = (index + 1) % len(self._rings)
        return self._rings[index]

    async def _wait_for_any(self, intake: Intake) -> None:
        """Wait until some ring has drained to half; a stop ends it, since nothing is in hand."""
        self._bell.any_ring = True
        try:
            while intake.open and not self._all_ended and not any(ring.drained for ring in self._rings):
                await self._bell.signal.wait()
        finally:
            self._bell.any_ring = False

    async def _wait_for(self, ring: Ring, delivery: Delivery) -> None:
        """Wait for a slot of this very ring; a stop does not end it, since the delivery is in hand."""
        self._bell.ring = ring
        try:
            while ring.full:
                await self._bell.signal.wait()
        except BaseException:
            delivery.release()
            raise
        finally:
            self._bell.ring = None


def _prepare(compiled: Compile, ring: Ring, side: ThreadSide) -> Work:
    return partial(_serve, ring, compiled(side))


async def _serve(ring: Ring, start: Start[Delivery]) -> None:
    """Handle what the ring gives, on its thread, until it is closed and empty."""
    try:
        with Shelter(ring):
            await _handle_all(ring, start)
    finally:
        ring.end()


async def _handle_all(ring: Ring, start: Start[Delivery]) -> None:
    streak = 0
    while not ring.broken:
        delivery = ring.take()
        if delivery is None:
            if not await ring.wait():
                return

            streak = 0
            continue

        rest = start(delivery)
        if rest is not None:
            await rest
            streak = 0

        ring.hand = None
        streak += 1
        if streak == STREAK:
            streak = 0
            await checkpoint()
