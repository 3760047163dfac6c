"""Where a dispatch form takes its deliveries from, until it is stopped."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from pystream._loops import is_cancellation
from pystream._runtime.pauses import Pauses
from pystream._runtime.reporting import Reporter
from pystream.errors import StrayCancellation, SubscriptionEnded
from pystream.protocols import Delivery, Gap, Subscriber

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Intake:
    """One subscription's stream, with its failures and its end taken care of.

    Args:
        subscriber: The plugin's stream.
        pauses: The sleeps of the loop it belongs to; stopped with the intake.
        report: The subscription's log.
        degraded: Told the reason when the stream fails, and none when it works again.
        ended: Told when the stream has ended by itself.

    Attributes:
        take: The next buffered delivery, `GAP`, or none.
        open: Whether more may be taken.
    """

    __slots__ = ("_degraded", "_ended", "_pause", "_pauses", "_report", "_subscriber", "open", "take")

    def __init__(
        self,
        subscriber: Subscriber,
        *,
        pauses: Pauses,
        report: Reporter,
        degraded: Callable[[str | None], None],
        ended: Callable[[SubscriptionEnded], None],
    ) -> None:
        self._subscriber = subscriber
        self._pauses = pauses
        self._report = report
        self._degraded = degraded
        self._ended = ended
        self._pause = _FIRST_PAUSE
        self.open = True
        self.take: Callable[[], Delivery | Gap | None] = subscriber.take

    async def wait(self) -> None:
        """Return when a `take` may succeed, or the intake was stopped. One task at a time."""
        if not self.open:
            return

        try:
            await self._subscriber.wait()
        except BaseException as error:
            await self.overcome(stream_failure(error))

    async def overcome(self, failure: Exception) -> None:
        """Deal with what a wait for the stream has raised: end, or return when another try is due."""
        if not self.open:
            return

        if isinstance(failure, SubscriptionEnded):
            self.stop()
            self._ended(failure)
        else:
            await self._back_off(failure)

    def stop(self) -> None:
        """Take nothing more: ends the wait and every pause. Synchronous, idempotent."""
        self.open = False
        self._subscriber.interrupt()
        self._pauses.stop()

    async def _back_off(self, error: Exception) -> None:
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        self._report.stream_failed(error, pause)
        self._degraded(f"the stream failed: {error}")
        self.take = self._take_after_failure
        await self._pauses.pause(pause)

    def _take_after_failure(self) -> Delivery | Gap | None:
        delivery = self._subscriber.take()
        if delivery is not None:
            self._pause = _FIRST_PAUSE
            self.take = self._subscriber.take
            self._degraded(None)

        return delivery


def stream_failure(error: BaseException) -> Exception:
    """What a wait for the stream has raised, as the stream's failure; raises what is none: a cancellation, an exit."""
    if isinstance(error, Exception):
        return error

    if is_cancellation(error) or not isinstance(error, anyio.get_cancelled_exc_class()):
        raise error

    # Let on, a task group would swallow it, and the loop would end without a word.
    return StrayCancellation("the wait for deliveries was cancelled by nobody")
