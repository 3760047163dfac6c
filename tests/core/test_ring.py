"""The ring between the feeder and a dedicated thread: its slots, and that no wake-up is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
from pystream._runtime.forms._ring import HALF, SLOTS, Bell, Ring
from pystream._runtime.forms.threads import _handle_all
from pystream.protocols import Delivery
from pystream.signal import Signal

from tests.core.scripted import Journal, ScriptedDelivery, ScriptedSubscriber
from tests.core.threading_support import deliveries

SECONDS = 5.0


class CountingSignal(Signal):
    """A signal that counts how often it was rung."""

    def __init__(self) -> None:
        super().__init__()
        self.rung = 0

    def wake_from_thread(self) -> None:
        self.rung += 1
        super().wake_from_thread()


class Looked(deque[Any]):
    """Slots that do something at the moment in which a side has just looked at them, and seen none."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self._then: Callable[[], object] | None = then

    def __len__(self) -> int:
        seen = super().__len__()
        then, self._then = self._then, None
        if then is not None:
            then()

        return seen


def filled(count: int = SLOTS) -> tuple[Ring, CountingSignal, list[ScriptedDelivery]]:
    bell = Bell()
    bell.signal = signal = CountingSignal()
    ring = Ring(bell)
    items = deliveries(count)
    stream = ScriptedSubscriber("orders", Journal())
    for item in items:
        item.stream = stream
        ring.put(item)

    return ring, signal, items


@pytest.mark.promise("DISPATCH-70")
def test_a_ring_has_eight_slots_and_one_is_free_once_taken() -> None:
    """Eight deliveries fill a ring; the one that is taken frees its slot before it is handled."""
    ring, _, items = filled(7)
    assert (ring.full, ring.has_room) == (False, True)
    ring.put(eighth := ScriptedDelivery("8"))
    assert (ring.full, ring.has_room) == (True, False)
    assert ring.take() is items[0]
    assert (ring.hand, ring.full, ring.has_room) == (items[0], False, True)
    assert [ring.take() for _ in range(8)] == [*items[1:], eighth, None]


@pytest.mark.promise("DISPATCH-74")
def test_a_feeder_that_waits_for_any_ring_is_woken_at_half() -> None:
    """The fourth delivery that is taken of eight wakes the feeder, and none before."""
    ring, signal, _ = filled()
    assert ring._bell.signal is signal
    ring._bell.any_ring = True
    for left in (7, 6, 5):
        ring.take()
        assert (signal.rung, ring.drained) == (0, False), left

    ring.take()
    assert (signal.rung, ring.drained, len(ring._slots)) == (1, True, HALF)


@pytest.mark.promise("DISPATCH-74")
def test_a_feeder_that_waits_for_a_ring_is_woken_at_its_first_slot() -> None:
    """The first delivery that is taken of the awaited ring wakes the feeder, and none of another ring."""
    ring, signal, _ = filled()
    other = Ring(ring._bell)
    ring._bell.ring = other
    ring.take()
    assert signal.rung == 0
    ring._bell.ring = ring
    ring.take()
    assert signal.rung == 1


@pytest.mark.promise("DISPATCH-74")
def test_a_feeder_that_waits_for_nothing_is_not_woken() -> None:
    """While the feeder does not wait, no take costs a wake-up."""
    ring, signal, _ = filled()
    while ring.take() is not None:
        pass

    assert signal.rung == 0


@pytest.mark.promise("DISPATCH-77")
def test_only_a_parked_thread_is_woken() -> None:
    """While its thread does not wait, no delivery that is put costs a wake-up; one that waits is woken once."""
    ring, _, _ = filled(0)
    ring._filled = signal = CountingSignal()
    ring.put(ScriptedDelivery("1"))
    assert signal.rung == 0
    ring._parked = True
    ring.put(ScriptedDelivery("2"))
    ring.put(ScriptedDelivery("3"))
    assert signal.rung == 1


@pytest.mark.promise("DISPATCH-77")
@pytest.mark.anyio
async def test_what_is_put_after_the_threads_look_wakes_it() -> None:
    """A delivery put between a thread's look and its sleep wakes it: the flag was up before the look."""
    ring, _, _ = filled(0)
    late = ScriptedDelivery("late")
    ring._slots = Looked(lambda: ring.put(late))
    with anyio.fail_after(SECONDS):
        assert await ring.wait()

    assert ring.take() is late


@pytest.mark.promise("DISPATCH-77")
@pytest.mark.anyio
async def test_what_is_put_before_the_close_is_not_left() -> None:
    """A delivery that is put, and the ring closed, right after the thread's look is still taken."""
    ring, _, _ = filled(0)
    late = ScriptedDelivery("late")

    def put_and_close() -> None:
        ring.put(late)
        ring.close()

    ring._slots = Looked(put_and_close)
    with anyio.fail_after(SECONDS):
        assert await ring.wait()
        assert ring.take() is late
        assert not await ring.wait()


@pytest.mark.promise("DISPATCH-77")
@pytest.mark.anyio
async def test_a_parked_thread_sees_the_close() -> None:
    """A thread that sleeps on an empty ring is woken when the ring is closed, and told that nothing will come."""
    ring, _, _ = filled(0)
    seen: list[bool] = []

    async def sleep() -> None:
        while not seen or seen[-1]:
            seen.append(await ring.wait())

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            await anyio.lowlevel.checkpoint()
            ring.close()

    assert seen[-1] is False


@pytest.mark.promise("DISPATCH-80")
def test_a_ring_that_has_ended_gives_everything_back() -> None:
    """The end of a thread gives back what it has in hand, what is in its ring, and what is put there later."""
    ring, signal, items = filled()
    ring.take()
    ring.end()
    assert signal.rung == 1
    assert (ring.full, ring.has_room, ring.drained) == (False, False, False)
    late = ScriptedDelivery("9")
    late.stream = items[0].stream
    ring.put(late)
    ring.end()
    assert [item.ends for item in (*items, late)] == [["release"]] * 9


@pytest.mark.promise("DISPATCH-75")
@pytest.mark.anyio
async def test_a_thread_passes_a_checkpoint_after_64_deliveries() -> None:
    """A thread that handles 64 deliveries without a suspension lets the rest of its loop have a turn."""
    ring, _, _ = filled(0)
    ring._slots.extend(deliveries(640))
    ring.close()
    handled: list[Delivery] = []
    seen = [0]

    async def watch() -> None:
        while len(handled) < 640:
            await anyio.lowlevel.checkpoint()
            seen.append(len(handled))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.lowlevel.checkpoint()
            await _handle_all(ring, handled.append)

    steps = {after - before for before, after in pairwise(seen)} - {0}
    assert all(step % 64 == 0 for step in steps)
    assert max(steps) <= 128  # trio may come round twice before the same task has its next turn
