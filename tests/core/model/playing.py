"""Plays a schedule on a real form, move by move, beside the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from unittest import mock

import anyio
from anyio.lowlevel import checkpoint
from pystream import Context, Outcome
from pystream._runtime import dedicated
from pystream._runtime.forms import Form

from tests.core.model.cases import Case
from tests.core.model.comparing import Seen, compare
from tests.core.model.idling import idle
from tests.core.model.schedules import Move, Schedule
from tests.core.model.watching import Event, Rejected, Watch
from tests.core.model.world import POLICY, ThreadClock, World
from tests.core.rig import Rig, rig
from tests.core.scripted import ScriptedSource

__all__ = ["Played", "play_schedule"]

_ROUNDS = 2000  # of opening everything: more than any schedule has events
PATIENCE = 5.0  # seconds that threads have for what nothing keeps them from


class Played:
    """One schedule on one form.

    Attributes:
        most: How many deliveries were in hand at most.
    """

    def __init__(self, schedule: Schedule, case: Case, running: Rig, world: World, patience: float) -> None:
        self._schedule = schedule
        self._running = running
        self._world = world
        self._model = None if schedule.flavour == "loose" else case.model(schedule)
        self._watch = Watch(
            world.decided,
            bound=case.bound(schedule.size),
            at_once=case.at_once(schedule.size),
            group=case.group(schedule),
        )
        self._case = case
        self._patience = patience
        self._left = world.deliveries()
        self._seen = Seen()
        self._looked_at = 0
        self._stopped = False
        self._cancelled = False

    @property
    def most(self) -> int:
        return self._watch.most

    async def play(self) -> None:
        """All moves, then everything to its end."""
        for move in self._schedule.moves:
            await self._move(move)
            if self._cancelled:
                break

        if not self._is_stopping:
            await self._move(Move("feed singly" if self._schedule.flavour == "gated" else "feed", len(self._left)))

        await self._run_down()
        if not self._is_stopping:
            await self._move(Move("stop"))

        await self._settled()
        for _ in range(_ROUNDS):
            if self._is_done or not await self._changes():
                break

            self._look()

        if self._running.subscription.running:
            raise Rejected("end", "all is settled, the form was stopped, and it does not end")

        self._watch.over()
        self._check_releases()

    @property
    def _is_stopping(self) -> bool:
        return self._stopped or self._cancelled or bool(self._running.failures)

    async def _move(self, move: Move) -> None:
        kind, n = move
        if self._is_stopping and kind in ("stop", "feed, stop", "open, stop"):
            return

        if kind == "turns":
            for _ in range(n):
                await checkpoint()

            return

        if kind == "feed singly":
            for _ in range(n):
                self._feed(1)
                await self._settled()

            return

        self._make(kind, n)
        await self._settled()

    def _make(self, kind: str, n: int) -> None:
        if kind in ("feed", "feed, stop"):
            self._feed(n)

        gates = self._choose(n if kind != "open many" else 0, n if kind == "open many" else 1)
        if kind.endswith("stop"):
            self._stop()

        if kind.startswith("open"):
            self._open(gates)
        elif kind == "tick":
            self._tick()
        elif kind == "cancel":
            self._cancel()

    def _feed(self, count: int) -> None:
        fed, self._left = self._left[:count], self._left[count:]
        if self._model is not None:
            self._model.feed([int(item.id) for item in fed])

        self._running.feed(*fed)

    def _choose(self, start: int, count: int) -> list[int]:
        waiting = sorted(self._world.gates)
        if not waiting:
            return []

        start %= len(waiting)
        return waiting[start : start + count]

    def _open(self, indexes: Sequence[int]) -> None:
        if len(indexes) > 1 and any(self._schedule.plans[index].end == "fatal" for index in indexes):
            indexes = indexes[:1]

        for index in indexes:
            self._world.let_go(index)
            if self._model is not None:
                self._model.let_go(index)

    def _tick(self) -> None:
        self._world.tick(self._running.clock)
        if self._model is not None:
            self._model.tick()

    def _stop(self) -> None:
        self._stopped = True
        self._world.note(Event("stop"))
        self._running.subscription.stop()
        if self._model is not None:
            self._model.stop()

    def _cancel(self) -> None:
        self._cancelled = True
        self._model = None
        self._world.note(Event("cancel"))
        self._running.subscription.cancel()

    async def _settled(self) -> None:
        """Let happen what can happen, and compare."""
        if self._model is not None:
            self._model.advance()

        await idle()
        self._look()
        if not self._case.threads:
            self._compare()
            return

        with anyio.move_on_after(self._patience):
            while not self._agrees():
                await self._world.changed.wait()
                await idle()
                self._look()

        self._compare()

    def _agrees(self) -> bool:
        """Whether the threads have done all they can; what they have done too much is for `_compare`."""
        try:
            self._compare()
        except Rejected as rejected:
            return rejected.is_final

        return True

    def _look(self) -> None:
        events = self._world.events
        while self._looked_at < len(events):
            event = events[self._looked_at]
            self._looked_at += 1
            self._watch.see(event)
            self._seen.add(event)

        if self._running.stream.most_waiters > 1:
            raise Rejected("one waiter", f"{self._running.stream.most_waiters} tasks waited for the stream")

    def _compare(self) -> None:
        if self._model is None:
            self._check_that_it_takes()
        else:
            compare(self._seen, self._world.gates.copy(), self._model, is_stopping=self._is_stopping)

    def _check_that_it_takes(self) -> None:
        """Where no model says how many there should be."""
        in_hand, least = len(self._running.stream.unsettled), self._case.least(self._schedule.size)
        if self._running.stream.items and not self._is_stopping and in_hand < least:
            raise Rejected("bound reached", f"{in_hand} in hand, and more wait, which could be taken", final=False)

    async def _run_down(self) -> None:
        """Open gates and let time pass until nothing is left, without a stop."""
        for _ in range(_ROUNDS):
            if self._is_done:
                return

            gates = self._choose(0, 1 if self._model else len(self._world.gates))
            self._open(gates)
            if not gates or self._model is None:
                self._tick()

            await self._settled()
            is_to_come = self._model is not None and self._model.waiting
            if not gates and not is_to_come and not await self._changes():
                break

        if not self._is_done:
            raise Rejected("liveness", "nothing can move any more, and not everything was handled")

    async def _changes(self) -> bool:
        """Whether something more happens by itself, or can be made to happen."""
        if self._world.gates:
            return True

        if self._is_done or not self._case.threads:
            return self._running.clock.timers > 0

        with anyio.move_on_after(self._patience):
            await self._world.changed.wait()
            return True

        return False

    @property
    def _is_done(self) -> bool:
        stream = self._running.stream
        if self._is_stopping:
            return not self._running.subscription.running

        return not stream.items and not stream.unsettled

    def _check_releases(self) -> None:
        """A graceful stop gives back what it must, no more."""
        if self._cancelled:
            return

        released = [index for index, kind in self._seen.ends.items() if kind == "release"]
        for index in released:
            behind = any(self._case.follows(self._schedule, index, other) for other in released)
            if not behind and self._world.decided.get(index) not in ("again", "fatal"):
                raise Rejected("drain", f"{index} was given back, and could have been handled")


async def _beside(helper: Callable[[], Coroutine[Any, Any, None]], function: Callable[[], Awaitable[None]]) -> None:
    """Run the function, and the helper as long as that runs."""
    raised: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(helper)
        try:
            await function()
        except Exception as error:  # as it is: the task group would wrap it
            raised = error

        tasks.cancel_scope.cancel()

    if raised is not None:
        raise raised


async def _tell_of_the_end(running: Rig, world: World) -> None:
    await running.subscription.finished()
    world.changed.wake()


async def play_schedule(
    schedule: Schedule, case: Case, form: Callable[[int], Form] | None = None, patience: float = PATIENCE
) -> Played:
    """Play the schedule on the form of the case, or on another in its place.

    Args:
        schedule: What happens.
        case: The form.
        form: Makes the other, of its n.
        patience: Seconds that threads have for what nothing keeps them from.

    Raises:
        Rejected: The form broke a promise.
    """
    world = World(schedule)

    async def handler(body: bytes, context: Context) -> Outcome:
        (outcome,) = await world.handle([int(body)])
        return outcome

    async def batch_handler(bodies: list[bytes]) -> list[Outcome]:
        return await world.handle([int(body) for body in bodies])

    def clock() -> ThreadClock:
        made = ThreadClock()
        world.clocks.append(made)
        return made

    source = ScriptedSource(retry="in_place" if schedule.in_place else "broker")
    made = None if form is None else lambda: form(schedule.size)
    with mock.patch.object(dedicated, "LoopClock", clock):
        chosen, settings = batch_handler if case.batches else handler, case.settings(schedule.size)
        async with rig(chosen, source=source, policy=POLICY, form=made, **settings) as running:
            await idle()
            played = Played(schedule, case, running, world, patience)
            try:
                await _beside(partial(_tell_of_the_end, running, world), played.play)
            finally:
                if running.subscription.running:
                    running.subscription.cancel()

                await running.subscription.end()

    return played
