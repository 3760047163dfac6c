"""Where a dispatch form takes its deliveries from, until it is stopped."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from pystream._loops import is_cancellation
from pystream._runtime.reporting import Reporter
from pystream.errors import StrayCancellation, SubscriptionEnded
from pystream.protocols import Clock, Delivery, Gap, Subscriber
from pystream.signal import Signal

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Intake:
    """One subscription's stream, with its failures and its end taken care of.

    Args:
        subscriber: The plugin's stream.
        clock: The time of the pauses.
        report: The subscription's log.
        degraded: Told the reason when the stream fails, and none when it works again.
        ended: Told when the stream has ended by itself.

    Attributes:
        take: The next buffered delivery, `GAP`, or none.
        open: Whether more may be taken.
    """

    __slots__ = ("_clock", "_degraded", "_ended", "_pause", "_report", "_sleepers", "_subscriber", "open", "take")

    def __init__(
        self,
        subscriber: Subscriber,
        *,
        clock: Clock,
        report: Reporter,
        degraded: Callable[[str | None], None],
        ended: Callable[[SubscriptionEnded], None],
    ) -> None:
        self._subscriber = subscriber
        self._clock = clock
        self._report = report
        self._degraded = degraded
        self._ended = ended
        self._pause = _FIRST_PAUSE
        self._sleepers: set[Signal] = set()
        self.open = True
        self.take: Callable[[], Delivery | Gap | None] = subscriber.take

    async def wait(self) -> None:
        """Return when a `take` may succeed, or the intake was stopped. One task at a time."""
        if not self.open:
            return

        try:
            await self._subscriber.wait()
        except SubscriptionEnded as end:
            if self.open:
                self.stop()
                self._ended(end)
        except Exception as error:
            if self.open:
                await self._back_off(error)
        except BaseException as error:
            if is_cancellation(error) or not isinstance(error, anyio.get_cancelled_exc_class()):
                raise

            # Let on, a task group would swallow it, and the loop would end without a word.
            if self.open:
                await self._back_off(StrayCancellation("the wait for deliveries was cancelled by nobody"))

    def stop(self) -> None:
        """Take nothing more: ends the wait and every pause. Synchronous, idempotent."""
        self.open = False
        self._subscriber.interrupt()
        for sleeper in self._sleepers:
            sleeper.wake()

    async def pause(self, delay: float) -> bool:
        """Sleep for `delay` seconds, or until the intake is stopped; answers whether it is open.

        Any number of tasks may pause at once. Cancel safety: cancelling it changes nothing.
        """
        sleeper = Signal()
        self._sleepers.add(sleeper)
        timer = self._clock.call_later(delay, sleeper.wake)
        try:
            if self.open:
                await sleeper.wait()
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

        return self.open

    async def _back_off(self, error: Exception) -> None:
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        self._report.stream_failed(error, pause)
        self._degraded(f"the stream failed: {error}")
        self.take = self._take_after_failure
        await self.pause(pause)

    def _take_after_failure(self) -> Delivery | Gap | None:
        delivery = self._subscriber.take()
        if delivery is not None:
            self._pause = _FIRST_PAUSE
            self.take = self._subscriber.take
            self._degraded(None)

        return delivery
