"""What a schedule acts on: deliveries and handlers that tell what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from anyio.lowlevel import checkpoint
from pystream import FailurePolicy, Outcome, ack, drop, retry
from pystream._loops import current_loop
from pystream.failures import FAIL_FAST
from pystream.signal import Signal

from tests.core.model.schedules import Decided, Key, Schedule, decide
from tests.core.model.watching import Event
from tests.core.scripted import DelayableDelivery, ScriptedSubscriber
from tests.manual_clock import ManualClock

__all__ = ["POLICY", "ThreadClock", "World"]

_AGES = 1000.0  # seconds: longer than any delay


class Fatal(Exception):
    """Stops the service."""


class _Delivery(DelayableDelivery):
    """Tells when it is taken, and how it ends."""

    def __init__(self, index: int, key: str | None, told: Callable[[Event], None]) -> None:
        self._index = index
        self._told = told
        super().__init__(str(index), str(index).encode(), key=None if key is None else Key(key), count=1)

    @property
    def stream(self) -> ScriptedSubscriber | None:
        return self._stream

    @stream.setter
    def stream(self, stream: ScriptedSubscriber | None) -> None:
        self._stream = stream
        if stream is not None:
            self._told(Event("take", self._index))

    def _note(self, kind: str) -> None:
        self._told(Event(kind, self._index))
        super()._note(kind)


class ThreadClock(ManualClock):
    """The clock of a thread's loop; belongs to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = current_loop()


class World:
    """The handlers, and what they were seen doing.

    Attributes:
        events: All that happened, in order.
        gates: By the index of its delivery, what lets a handler go that waits for it.
        changed: Woken by each of them, from any thread.
        clocks: Of the threads.
        decided: What was decided of each delivery, at its last run.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.events: list[Event] = []
        self.gates: dict[int, Callable[[], object]] = {}
        self.changed = Signal()
        self.clocks: list[ThreadClock] = []
        self.decided: dict[int, Decided] = {}
        self._schedule = schedule
        self._runs: Counter[int] = Counter()

    def deliveries(self) -> list[_Delivery]:
        return [_Delivery(index, plan.key, self.note) for index, plan in enumerate(self._schedule.plans)]

    def note(self, event: Event) -> None:
        self.events.append(event)
        self.changed.wake_from_thread()

    def tick(self, clock: ManualClock) -> None:
        clock.advance(_AGES)
        for other in self.clocks:
            other.loop.post(partial(other.advance, _AGES))

    async def handle(self, run: Sequence[int]) -> list[Outcome]:
        """Handle a batch of deliveries, or one."""
        plans = self._schedule.plans
        for index in run:
            self.note(Event("begin", index))

        for gated in plans[run[0]].steps:
            await (self._gate(run[0]) if gated else checkpoint())

        self._runs.update(run)
        decided = decide(plans, run, self._runs, in_place=self._schedule.in_place)
        self.decided |= decided
        for index in run:
            self.note(Event("end", index))

        if decided[run[0]] == "fatal":
            raise Fatal

        if plans[run[0]].end == "raise" and decided[run[0]] != "ack":
            raise ValueError

        return [_OUTCOMES[decided[index]] for index in run]

    async def _gate(self, index: int) -> None:
        gate = Signal()
        self.gates[index] = partial(current_loop().post, gate.wake)
        self.changed.wake_from_thread()
        try:
            await gate.wait()
        finally:
            self.gates.pop(index, None)

    def let_go(self, index: int) -> None:
        gate = self.gates.pop(index, None)
        if gate is not None:  # else its handler was cancelled meanwhile, on its thread
            # Posted even if the handler does not wait yet: after a tick that was posted before.
            gate()


_OUTCOMES: dict[Decided, Outcome] = {
    "ack": ack(),
    "reject": drop(),
    "requeue": retry(),
    "again": retry(),
}

POLICY = FailurePolicy(error={Fatal: FAIL_FAST})
