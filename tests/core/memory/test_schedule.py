"""The redelivery schedule: held until due, by the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.memory import RedeliverySchedule

from tests.manual_clock import ManualClock

_SECONDS = st.floats(0, 50, allow_nan=False)


@pytest.mark.promise("MEMORY-15")
def test_items_come_in_the_order_of_their_times() -> None:
    """The earliest is handed over first, equals in the order of their adding, each by one timer."""
    clock = ManualClock()
    came: list[str] = []
    schedule: RedeliverySchedule[str] = RedeliverySchedule(clock, came.append)
    for delay, item in ((5, "late"), (1, "soon"), (1, "then"), (3, "middle")):
        schedule.add(delay, item)

    assert clock.timers == 1
    clock.advance(3)
    assert came == ["soon", "then", "middle"]
    assert len(schedule) == 1
    clock.advance(2)
    assert came[-1] == "late"
    assert clock.timers == 0


@pytest.mark.promise("MEMORY-15")
def test_nothing_is_handed_over_from_within_add() -> None:
    """A delay of 0 is due at the clock's next call, not inside `add`."""
    clock = ManualClock()
    came: list[str] = []
    schedule: RedeliverySchedule[str] = RedeliverySchedule(clock, came.append)
    schedule.add(0, "now")
    assert came == []
    clock.advance(0)
    assert came == ["now"]


@pytest.mark.promise("MEMORY-15")
def test_a_cleared_schedule_hands_nothing_over() -> None:
    """Clearing forgets the items and their timer, and the schedule serves again."""
    clock = ManualClock()
    came: list[str] = []
    schedule: RedeliverySchedule[str] = RedeliverySchedule(clock, came.append)
    schedule.add(1, "forgotten")
    schedule.clear()
    assert (len(schedule), clock.timers) == (0, 0)
    schedule.add(2, "kept")
    clock.advance(2)
    assert came == ["kept"]


@pytest.mark.promise("MEMORY-5", "MEMORY-15")
def test_a_timer_that_fires_early_brings_nothing_early() -> None:
    """Where the loop rounds a timer down, the item still waits for its full time."""
    clock = ManualClock(early=0.25)
    came: list[float] = []
    schedule: RedeliverySchedule[float] = RedeliverySchedule(clock, lambda due: came.append(clock.now() - due))
    schedule.add(1, clock.now() + 1)
    schedule.add(2, clock.now() + 2)
    for _ in range(40):
        clock.advance(0.0625)

    assert len(came) == 2
    assert min(came) >= 0


@pytest.mark.promise("MEMORY-5", "MEMORY-15")
@given(st.lists(st.tuples(st.booleans(), _SECONDS), max_size=40))
def test_each_item_comes_once_and_never_early(steps: list[tuple[bool, float]]) -> None:
    """Whatever is added and however time passes, each item comes once, at its time or later."""
    clock = ManualClock()
    held: dict[int, float] = {}

    def arrive(item: int) -> None:
        assert clock.now() >= held.pop(item), "early"

    schedule: RedeliverySchedule[int] = RedeliverySchedule(clock, arrive)
    for item, (adds, seconds) in enumerate(steps):
        if adds:
            held[item] = clock.now() + seconds
            schedule.add(seconds, item)
        else:
            clock.advance(seconds)
            assert all(due > clock.now() for due in held.values()), "late"

        assert len(schedule) == len(held)
