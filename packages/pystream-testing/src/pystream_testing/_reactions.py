"""When a reaction is over: in process exactly, on a server by what it owes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint
from pystream.clock import LoopClock
from pystream.harness import Harnessed
from pystream.protocols import Timer

from pystream_testing._ledger import Ledger
from pystream_testing._recorder import Recorder
from pystream_testing.clock import VirtualClock
from pystream_testing.errors import NotQuiescentError

__all__ = ["InProcess", "Live", "Reactions"]

LIMIT = 10_000
"""The most deliveries of one reaction."""

_TURNS = 20
"""So many turns of the loop without any event, and what is left waits for time or for the test."""

_LONGEST_PACE = 1.0
"""Seconds that a broker may take of its own to hand out again what was given back to be handed out at once."""


class Reactions(Protocol):
    """Waits for the end of reactions, and moves time."""

    async def settle(self) -> None:
        """Return when nothing runs and nothing is owed.

        Raises:
            NotQuiescentError: It did not come to that.
        """

    async def drain(self) -> None:
        """Return when, besides, no task that follows a settlement is left."""

    async def advance(self, seconds: float) -> None:
        """Let time pass, with all that becomes due on the way."""

    def close(self) -> None:
        """Keep no timer."""


class InProcess:
    """Over transports in the process and a virtual clock.

    Args:
        harnessed: The app.
        recorder: What is told of it.
        clock: Its clock.
        timeout: Seconds of real time without any event after which a wait gives up.
    """

    def __init__(self, harnessed: Harnessed, recorder: Recorder, clock: VirtualClock, timeout: float) -> None:
        self._harnessed = harnessed
        self._recorder = recorder
        self._clock = clock
        self._watch = _Watch(recorder, timeout)
        self._timeout = timeout
        self._recordings = list(recorder.recordings.values())
        self._owed = [getattr(broker.connected, "owed", None) for broker in harnessed.brokers if broker.handlers]

    async def settle(self) -> None:
        recorder, watch = self._recorder, self._watch
        most = recorder.taken + LIMIT
        watch.begin()
        try:
            while not recorder.stopped:
                if recorder.taken > most or watch.has_run_out:
                    raise self._not_quiescent(most)

                if recorder.running > 0 or recorder.publishes:
                    await recorder.change()
                elif self._clock.is_due:
                    self._clock.move(self._clock.now())
                elif self._is_quiet() or await self._is_stalled():
                    if recorder.taken != recorder.begun and self._harnessed.filling:
                        self._harnessed.close_batches()
                        await checkpoint()
                    elif not self._pass_time_for_requeued():
                        return
        finally:
            watch.end()

        await self._harnessed.ended()

    async def drain(self) -> None:
        await self.settle()
        recorder = self._recorder
        self._watch.begin()
        try:
            while recorder.tasks and not recorder.stopped:
                if self._watch.has_run_out:
                    raise NotQuiescentError(
                        f"still running after {self._timeout:g} s: {', '.join(recorder.tasks)}; "
                        "if they sleep on the clock, advance it"
                    )

                await recorder.change()
        finally:
            self._watch.end()

        await self.settle()

    async def advance(self, seconds: float) -> None:
        clock = self._clock
        end = clock.now() + seconds
        await self.settle()
        while (due := clock.next_due) is not None and due <= end and not self._recorder.stopped:
            clock.move(due)
            await self.settle()

        clock.move(end)
        await self.settle()

    def close(self) -> None:
        self._watch.close()

    def _not_quiescent(self, most: int) -> NotQuiescentError:
        if self._recorder.taken > most:
            return NotQuiescentError(
                f"more than {LIMIT:,} deliveries in one reaction ({self._counts()}); the service feeds itself"
            )

        return NotQuiescentError(f"nothing has happened for {self._timeout:g} s, and it is not over: {self._busy()}")

    def _is_quiet(self) -> bool:
        """Whether certainly nothing will happen until time passes or the test does something."""
        waiting = self._recorder.taken - self._recorder.begun
        if waiting and waiting != self._harnessed.filling:
            return False

        for recording in self._recordings:
            if not recording.waits:
                return False

        for owed in self._owed:
            if owed is None or owed():
                return False

        return not self._recorder.tasks

    async def _is_stalled(self) -> bool:
        """Whether nothing happens for some turns of the loop: what is left then waits for time or for the test."""
        recorder = self._recorder
        before = recorder.progress
        for _ in range(_TURNS):
            await checkpoint()
            if recorder.progress != before:
                return False

        return True

    def _pass_time_for_requeued(self) -> bool:
        """Let a broker's own pause before a redelivery pass; answers whether any time did."""
        clock = self._clock
        requeued = self._recorder.requeued
        if not requeued or all(time > clock.now() for time in requeued.values()):
            return False

        due = clock.next_due
        if due is None or due - clock.now() > _LONGEST_PACE:
            return False

        return clock.move(due)

    def _counts(self) -> str:
        return ", ".join(f"{item.name}: {len(item.calls)}" for item in self._recordings)

    def _busy(self) -> str:
        busy = [f"{item.name} handles {item.running}" for item in self._recordings if item.running > 0]
        if self._recorder.publishes:
            busy.append(f"{len(self._recorder.publishes)} publishes")

        return ", ".join(busy) or "nothing is known to run"


class Live:
    """On a server, by the loop's own clock.

    Args:
        harnessed: The app.
        recorder: What is told of it.
        ledger: What the server owes.
        timeout: Seconds until a wait gives up.
    """

    def __init__(self, harnessed: Harnessed, recorder: Recorder, ledger: Ledger, timeout: float) -> None:
        self._harnessed = harnessed
        self._recorder = recorder
        self._ledger = ledger
        self._timeout = timeout

    async def settle(self) -> None:
        await self._until(lambda: True)

    async def drain(self) -> None:
        await self._until(lambda: not self._recorder.tasks)

    async def advance(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        await self.settle()

    def close(self) -> None:
        """There is no timer."""

    async def _until(self, more: Callable[[], bool]) -> None:
        recorder = self._recorder
        first = recorder.taken
        with anyio.move_on_after(self._timeout):
            while not recorder.stopped:
                if recorder.taken - first > LIMIT:
                    raise NotQuiescentError(f"more than {LIMIT:,} deliveries in one reaction; the service feeds itself")

                if self._is_over() and more():
                    return

                await recorder.change()

            await self._harnessed.ended()
            return

        raise NotQuiescentError(f"after {self._timeout:g} s: {self._debts()}")

    def _is_over(self) -> bool:
        recorder = self._recorder
        return recorder.running <= 0 and not recorder.publishes and not self._ledger.owing()

    def _debts(self) -> str:
        recorder = self._recorder
        lines = [str(group) for group in self._ledger.owing()]
        lines += [f"{item.name} handles {item.running}" for item in recorder.recordings.values() if item.running > 0]
        lines += [f"{len(recorder.publishes)} publishes are not confirmed"] if recorder.publishes else []
        return "; ".join([*lines, *(f"{name} still runs" for name in recorder.tasks)])


class _Watch:
    """Notices that nothing happens for too long, at the price of one timer while somebody waits."""

    def __init__(self, recorder: Recorder, timeout: float) -> None:
        self._recorder = recorder
        self._timeout = timeout
        self._clock = LoopClock()
        self._timer: Timer | None = None
        self._waiting = 0
        self._seen = -1
        self._since = 0.0
        self.has_run_out = False

    def begin(self) -> None:
        self._waiting += 1
        self.has_run_out = False
        if self._timer is None:
            self._note()
            self._set_timer()

    def end(self) -> None:
        self._waiting -= 1

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _note(self) -> None:
        self._seen, self._since = self._recorder.progress, self._clock.now()

    def _set_timer(self) -> None:
        self._timer = self._clock.call_later(self._timeout / 4, self._tick)

    def _tick(self) -> None:
        if self._waiting == 0:
            self._timer = None
            return

        if self._recorder.progress != self._seen:
            self._note()
        elif self._clock.now() - self._since >= self._timeout:
            self.has_run_out = True
            self._recorder.look()

        self._set_timer()
