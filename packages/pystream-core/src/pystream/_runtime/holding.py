"""Deliveries held for a delay: the timers of one loop, and the bound that all loops of a subscription share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Lock
from typing import TypeAlias

from pystream._loops import current_loop
from pystream._runtime.reporting import Reporter
from pystream._runtime.tracker import Tracker
from pystream.protocols import Clock, Delivery, Timer
from pystream.signal import LoopCall, Signal

_LOOK_EVERY = 0.1  # seconds; a plugin does not tell when it lets go of what it holds

GoOn: TypeAlias = "Callable[[], Awaitable[None]]"
"""Settles a delivery whose delay is over."""


class Delays:
    """How many deliveries of one subscription are held for a delay, and the bound of it.

    Those that timers of the runtime hold count, on all loops, and those that the plugin holds.
    Made on the subscriber's loop; what belongs to it says so.

    Args:
        limit: The bound, 1 or more.
        held_by_plugin: How many the plugin holds now.
        clock: The time of the subscriber's loop.
    """

    def __init__(self, limit: int, held_by_plugin: Callable[[], int], clock: Clock) -> None:
        self.limit = limit
        self._held_by_plugin = held_by_plugin
        self._clock = clock
        self._loop = current_loop()
        self._call = LoopCall(self._look)
        self._lock = Lock()
        self._held_by_us = 0
        self._holdings: list[Holding] = []
        self._signal = Signal()
        self._told = False
        self._tell: Callable[[bool], object] = lambda _: None

    def watch(self, tell: Callable[[bool], object]) -> None:
        """Have `tell` called when the bound is reached (true), and when it no longer is. On the subscriber's loop."""
        self._tell = tell

    def join(self, holding: Holding) -> None:
        """Count what another loop holds, too. From any thread."""
        with self._lock:
            self._holdings.append(holding)

    def change(self, by: int) -> None:
        """So many more, or fewer, are held by the runtime. From any thread."""
        with self._lock:
            self._held_by_us += by

        self.look()

    def look(self) -> None:
        """Something has changed; called also when the plugin has accepted a delay. From any thread."""
        if self._loop.is_current():
            self._look()
        else:
            self._call.request()

    async def room(self) -> None:
        """Return when there may be room again, or after `interrupt`. On the subscriber's loop, one task at a time.

        Cancel safety: cancelling it changes nothing.
        """
        timer = self._clock.call_later(_LOOK_EVERY, self._signal.wake) if self._held_by_plugin() else None
        try:
            await self._signal.wait()
        finally:
            if timer is not None:
                timer.cancel()

        self._look()

    def interrupt(self) -> None:
        """End the present wait for room, or the next one. On the subscriber's loop."""
        self._signal.wake()

    @property
    def held(self) -> int:
        """How many the timers of the runtime hold. From any thread."""
        return self._held_by_us

    def give_back(self) -> int:
        """Release what the timers hold, and hold nothing any more; answers how many there were.

        On the subscriber's loop; what another loop holds is released there, soon.
        """
        count = self._held_by_us
        with self._lock:
            holdings = list(self._holdings)

        for holding in holdings:
            holding.close()

        return count

    def _look(self) -> None:
        is_full = self._held_by_us + self._held_by_plugin() >= self.limit
        if is_full == self._told:
            return

        self._told = is_full
        self._tell(is_full)
        if not is_full:
            self._signal.wake()


class Holding:
    """Deliveries that timers of one loop hold, each a task of the tracker; everything but `close` belongs to the loop.

    Args:
        clock: The loop's time.
        tracker: Runs the tasks, so that a shutdown waits for them.
        delays: What they are counted in.
        report: The subscription's log.
    """

    def __init__(self, clock: Clock, tracker: Tracker, delays: Delays, report: Reporter) -> None:
        self._clock = clock
        self._tracker = tracker
        self._delays = delays
        self._report = report
        self._loop = current_loop()
        self._held: set[Held] = set()
        self._open = True
        delays.join(self)

    def hold(self, delivery: Delivery, delay: float, go_on: GoOn) -> None:
        """Keep a delivery, unsettled, for `delay` seconds; then await `go_on`, in the caller's context variables.

        Cancelled before, or closed, it is given back. `go_on` gives back what it does not settle.
        """
        if not self._open:
            delivery.release()
            return

        held = Held(delivery)
        self._held.add(held)
        self._delays.change(1)
        held.timer = self._clock.call_later(delay, lambda: self._come_due(held))
        name = f"{self._report.subscription}: {delivery.id}, held for a delay"
        self._tracker.adopt((name, self._wait, (held, go_on)), self._report.callback_failed)

    def close(self) -> None:
        """Release everything, and hold nothing any more. From any thread; idempotent."""
        if self._loop.is_current():
            self._close()
        else:
            self._loop.post(self._close)

    def _come_due(self, held: Held) -> None:
        held.is_due = True
        held.signal.wake()

    def _close(self) -> None:
        self._open = False
        for held in self._held:
            if not held.is_due:
                held.delivery.release()
                held.signal.wake()

    async def _wait(self, held: Held, go_on: GoOn) -> None:
        try:
            await held.signal.wait()
        except BaseException:
            held.delivery.release()
            raise
        finally:
            held.timer.cancel()
            self._held.discard(held)
            self._delays.change(-1)

        if held.is_due:
            await go_on()


class Held:
    """One delivery and its timer."""

    __slots__ = ("delivery", "is_due", "signal", "timer")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.is_due = False
        self.signal = Signal()
        self.timer: Timer
