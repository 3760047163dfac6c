"""The gathering of batches against a simple model, under random arrivals, failures, cuts and stops."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pystream._runtime.batch_intake import BatchIntake
from pystream._runtime.holding import Delays
from pystream._runtime.intake import Intake
from pystream._runtime.pauses import Pauses
from pystream._runtime.reporting import Reporter
from pystream.errors import SubscriptionEnded
from pystream.protocols import GAP

from tests.core.batches import quiet_log
from tests.core.rig import idle
from tests.core.scripted import Item, Journal, ScriptedDelivery, ScriptedSubscriber
from tests.manual_clock import ManualClock

_TICK = 0.0625  # a binary fraction: sums of it are exact
_WAIT = 2 * _TICK
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

Kind = Literal["delivery", "gap", "error", "end", "tick", "hold", "go", "stop"]
Emitted = tuple[float, tuple[str, ...]]
"""When a batch was handed on, and the ids in it."""


class Gathering:
    """A batch intake over a scripted stream, and one task that takes from it."""

    def __init__(self, size: int, wait: float = _WAIT) -> None:
        self.clock = ManualClock(0.0)
        self.stream = ScriptedSubscriber("orders", Journal())
        self.emitted: list[Emitted] = []
        self.troubles: list[str | None] = []
        self.ends: list[SubscriptionEnded] = []
        self.held = False
        self._go = anyio.Event()
        intake = Intake(
            self.stream,
            pauses=Pauses(self.clock),
            delays=Delays(1000, lambda: 0, self.clock),
            report=Reporter("orders", self.clock.now),
            degraded=self.troubles.append,
            ended=self.ends.append,
        )
        self.intake = BatchIntake(intake, size=size, wait=wait, clock=self.clock)

    async def consume(self) -> None:
        """What the default form does; a batch may be held."""
        while self.intake.open:
            batch = self.intake.take()
            if batch is None:
                await self.intake.wait()
                continue

            self.emitted.append((self.clock.now(), tuple(item.id for item in batch.deliveries)))
            while self.held:
                self._go = anyio.Event()
                await self._go.wait()

    def go(self) -> None:
        self.held = False
        self._go.set()

    @property
    def batches(self) -> list[list[str]]:
        return [list(ids) for _, ids in self.emitted]


@dataclass
class Model:
    """What should come of the same events, said as plainly as can be."""

    size: int
    now: float = 0.0
    queue: deque[str] = field(default_factory=deque)
    partial: list[str] = field(default_factory=list)
    first_taken: float = 0.0
    blocked_until: float = -1.0
    pause: float = _FIRST_PAUSE
    held: bool = False
    busy: bool = False
    stopped: bool = False
    emitted: list[Emitted] = field(default_factory=list)

    def emit(self) -> None:
        if self.partial:
            self.emitted.append((self.now, tuple(self.partial)))
            self.partial = []
            self.busy = self.held

    def work(self) -> None:
        """Do what can be done at this instant."""
        if self.stopped and not self.busy:
            self.emit()

        while not self.stopped and not self.busy and self.now >= self.blocked_until:
            if self.partial and self.now >= self.first_taken + _WAIT:
                self.emit()
            elif not self.queue:
                return
            elif self.queue[0] in ("error", "end"):
                if self.partial:
                    self.emit()  # first, and the failure after it
                else:
                    self.fail(self.queue.popleft())
            else:
                self.take(self.queue.popleft())

    def take(self, item: str) -> None:
        self.pause = _FIRST_PAUSE
        if item == "gap":
            self.emit()
            return

        if not self.partial:
            self.first_taken = self.now

        self.partial.append(item)
        if len(self.partial) == self.size:
            self.emit()

    def fail(self, how: str) -> None:
        if how == "end":
            self.stopped = True
            return

        self.blocked_until = self.now + self.pause
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)

    def apply(self, kind: Kind, name: str) -> None:
        if kind == "tick":
            self.now += _TICK
        elif kind == "hold":
            self.held = True
        elif kind == "go":
            self.held = self.busy = False
        elif kind == "stop":
            self.stopped = True
        else:
            self.queue.append(name if kind == "delivery" else kind)

        self.work()


def item_of(kind: Kind, name: str) -> Item:
    match kind:
        case "gap":
            return GAP
        case "error":
            return ConnectionError("lost")
        case "end":
            return SubscriptionEnded("over")
        case _:
            return ScriptedDelivery(name)


async def play(size: int, kinds: Sequence[Kind]) -> tuple[Gathering, Model]:
    """Run the events past the intake and past the model, and compare after each."""
    gathering, model = Gathering(size), Model(size)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gathering.consume)
        await idle(4)
        for number, kind in enumerate(kinds):
            name = str(number)
            match kind:
                case "tick":
                    gathering.clock.advance(_TICK)
                case "hold":
                    gathering.held = True
                case "go":
                    gathering.go()
                case "stop":
                    gathering.intake.stop()
                case _:
                    gathering.stream.feed(item_of(kind, name))

            await idle(12)
            model.apply(kind, name)
            assert gathering.emitted == model.emitted, (number, kind)

        gathering.go()
        gathering.intake.stop()
        with anyio.fail_after(10):
            while gathering.intake.open:
                await idle(1)

    model.held = model.busy = False
    model.apply("stop", "")
    assert gathering.emitted == model.emitted
    return gathering, model


_OFTEN: tuple[Kind, ...] = ("delivery", "tick", "delivery", "delivery")
_KINDS: tuple[Kind, ...] = (
    *_OFTEN * 6,
    "gap",
    "error",
    "hold",
    "go",
    "go",
    "gap",
    "error",
    "hold",
    "go",
    "end",
    "stop",
)


@pytest.mark.promise("BATCH-1")
@given(
    size=st.integers(1, 4),
    kinds=st.lists(st.sampled_from(_KINDS), max_size=40),
)
@example(size=3, kinds=["delivery", "error", "delivery", "tick", "tick", "tick"])
@example(size=3, kinds=["delivery", "tick", "delivery", "tick", "delivery"])
@settings(max_examples=200)
def test_random_schedules_give_the_batches_of_the_model(size: int, kinds: list[Kind]) -> None:
    """Whatever comes and goes, each batch holds what it should and is handed on when it should be; nothing is lost."""

    async def run() -> None:
        gathering, _ = await play(size, kinds)
        taken = [delivery.id for delivery in gathering.stream.taken]
        handed_on = [name for ids in gathering.batches for name in ids]
        assert handed_on == taken, "lost, repeated or out of order"
        assert all(1 <= len(ids) <= size for ids in gathering.batches)
        assert gathering.clock.timers == 0, "a timer was left behind"

    with quiet_log():
        anyio.run(run)


@pytest.mark.anyio
class TestClosing:
    """When a batch is closed."""

    @pytest.mark.promise("BATCH-2")
    @pytest.mark.parametrize(("fed", "sizes"), [(2, []), (3, [3]), (4, [3]), (6, [3, 3]), (7, [3, 3])])
    async def test_a_full_batch_goes_out_at_once(self, fed: int, sizes: list[int]) -> None:
        """A batch goes out with its n-th delivery, not one sooner, and never holds one more."""
        async with gathering_of(3) as running:
            running.stream.feed(*deliveries(fed))
            await idle()
            assert [len(ids) for ids in running.batches] == sizes

    @pytest.mark.promise("BATCH-3")
    async def test_the_wait_counts_from_the_first(self) -> None:
        """A batch that is not full goes out `batch_wait` after its first delivery was taken, whatever came since."""
        async with gathering_of(9, wait=0.25) as running:
            running.clock.advance(5)
            running.stream.feed(ScriptedDelivery("a"))
            await idle()
            running.clock.advance(0.125)
            running.stream.feed(ScriptedDelivery("b"))
            await idle()
            running.clock.advance(0.1249)
            await idle()
            assert running.emitted == []
            running.clock.advance(0.0001)
            await idle()
            ((when, ids),) = running.emitted
            assert (round(when, 9), ids) == (5.25, ("a", "b"))

    @pytest.mark.promise("BATCH-3")
    async def test_the_first_is_waited_for_without_limit(self) -> None:
        """No batch is ever empty: without a delivery there is no timer, and none goes out."""
        async with gathering_of(2) as running:
            await idle()
            running.clock.advance(3600)
            await idle()
            assert running.clock.timers == 0
            assert running.emitted == []

    @pytest.mark.promise("BATCH-4")
    async def test_a_cut_closes_the_batch(self) -> None:
        """What came before a seek and what comes after it are never in one batch, and both go out."""
        async with gathering_of(3) as running:
            running.stream.feed(ScriptedDelivery("a"), GAP, GAP, ScriptedDelivery("b"), ScriptedDelivery("c"))
            await idle()
            assert running.batches == [["a"]]
            running.clock.advance(_WAIT)
            await idle()
            assert running.batches == [["a"], ["b", "c"]]

    @pytest.mark.promise("BATCH-5")
    async def test_a_failure_waits_for_the_batch(self) -> None:
        """A stream that fails while a batch fills has it handed on first; the failure is dealt with after it."""
        async with gathering_of(3) as running:
            running.held = True
            running.stream.feed(ScriptedDelivery("a"), ConnectionError("lost"))
            await idle()
            assert running.batches == [["a"]]
            assert running.troubles == []
            running.go()
            await idle()
            assert running.troubles == ["the stream failed: lost"]

    @pytest.mark.promise("BATCH-5")
    async def test_an_end_waits_for_the_batch(self) -> None:
        """A stream that ends while a batch fills has it handed on first; the end is told after it."""
        async with gathering_of(3) as running:
            running.held = True
            running.stream.feed(ScriptedDelivery("a"), SubscriptionEnded("over"))
            await idle()
            assert running.batches == [["a"]]
            assert running.ends == []
            running.go()
            await idle()
            assert [str(end) for end in running.ends] == ["over"]
            assert not running.intake.open

    @pytest.mark.promise("BATCH-6")
    async def test_a_stop_hands_the_batch_on(self) -> None:
        """A batch that is being filled at the stop is handed on; what was not taken stays where it is."""
        async with gathering_of(3) as running:
            running.stream.feed(ScriptedDelivery("a"), ScriptedDelivery("b"))
            await idle()
            running.intake.stop()
            running.stream.feed(ScriptedDelivery("c"))
            assert running.intake.open, "the partial batch is still to be taken"
            await idle()
            assert running.batches == [["a", "b"]]
            assert not running.intake.open
            assert [delivery.id for delivery in running.stream.taken] == ["a", "b"]

    @pytest.mark.promise("BATCH-6")
    async def test_a_failure_at_the_stop_is_forgotten(self) -> None:
        """A failure that is held when the stop comes is not reported, and no pause is made for it."""
        async with gathering_of(3) as running:
            running.held = True
            running.stream.feed(ScriptedDelivery("a"), ConnectionError("lost"))
            await idle()
            running.intake.stop()
            running.go()
            await idle()
            assert running.troubles == []
            assert not running.intake.open

    @pytest.mark.promise("BATCH-7")
    async def test_what_nobody_takes_is_given_back(self) -> None:
        """A loop that was cancelled gives back what a batch was filled with, once, and leaves no timer."""
        gathering = Gathering(3)
        gathering.stream.feed(ScriptedDelivery("a"), ScriptedDelivery("b"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gathering.consume)
            await idle()
            assert gathering.intake.filling == 2
            tasks.cancel_scope.cancel()

        gathering.intake.stop()
        gathering.intake.give_back()
        gathering.intake.give_back()
        assert gathering.stream.journal.lines == ["release a", "release b"]
        assert gathering.clock.timers == 0
        assert not gathering.intake.open

    @pytest.mark.promise("BATCH-8")
    async def test_a_harness_may_close_it(self) -> None:
        """A batch that is being filled can be closed from outside; without one that does nothing."""
        async with gathering_of(3) as running:
            running.intake.close()
            running.stream.feed(ScriptedDelivery("a"))
            await idle()
            assert running.batches == []
            running.intake.close()
            await idle()
            assert running.batches == [["a"]]
            running.stream.feed(ScriptedDelivery("b"))
            await idle()
            assert running.batches == [["a"]], "one close, one batch"

    @pytest.mark.promise("BATCH-9")
    @pytest.mark.parametrize("size", [1, 5, 64, 200])
    async def test_others_run_between_batches(self, size: int) -> None:
        """After 64 deliveries handed on without a wait others run, however large the batches are."""
        gathering = Gathering(size)
        gathering.stream.feed(*deliveries(3200))
        seen: list[int] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gathering.consume)
            while sum(map(len, gathering.batches)) < 3200:
                await anyio.lowlevel.checkpoint()
                seen.append(sum(map(len, gathering.batches)))

            tasks.cancel_scope.cancel()

        steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
        assert max(steps) < 2 * (64 + size), "trio may run a task twice in a row"


@pytest.mark.anyio
@pytest.mark.promise("BATCH-5")
async def test_nothing_is_taken_while_the_stream_recovers() -> None:
    """During the pause after a failure no second task begins a batch that nobody would see coming due."""
    async with gathering_of(3) as running:
        running.stream.feed(ConnectionError("lost"))
        await idle()
        running.stream.feed(ScriptedDelivery("a"))
        assert running.intake.take() is None
        assert running.stream.taken == []
        running.clock.advance(_FIRST_PAUSE)
        await idle()
        assert running.intake.filling == 1


def deliveries(count: int) -> list[ScriptedDelivery]:
    return [ScriptedDelivery(str(number)) for number in range(count)]


@asynccontextmanager
async def gathering_of(size: int, wait: float = _WAIT) -> AsyncIterator[Gathering]:
    """A gathering whose task runs beside the body."""
    gathering = Gathering(size, wait)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gathering.consume)
        yield gathering
        tasks.cancel_scope.cancel()
