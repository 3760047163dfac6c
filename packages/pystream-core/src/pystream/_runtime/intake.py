"""Where a dispatch form takes its deliveries from, until it is stopped."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from pystream._loops import is_cancellation
from pystream._runtime.holding import Delays
from pystream._runtime.pauses import Pauses
from pystream._runtime.reporting import Reporter
from pystream.errors import StrayCancellation, SubscriptionEnded
from pystream.protocols import Delivery, Gap, Subscriber

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Intake:
    """One subscription's stream, with its failures, its end and the bound of held deliveries taken care of.

    Args:
        subscriber: The plugin's stream.
        pauses: The sleeps of the loop it belongs to; stopped with the intake.
        delays: The bound of what is held for a delay: once it is reached, nothing is taken.
        report: The subscription's log.
        degraded: Told the reason when nothing can be taken, and none when it works again.
        ended: Told when the stream has ended by itself.

    Attributes:
        take: The next buffered delivery, `GAP`, or none.
        open: Whether more may be taken.
        cancelled: Whether what was taken is being cancelled.
    """

    __slots__ = (
        "_degraded",
        "_delays",
        "_ended",
        "_failure",
        "_is_full",
        "_pause",
        "_pauses",
        "_report",
        "_subscriber",
        "cancelled",
        "open",
        "take",
    )

    def __init__(
        self,
        subscriber: Subscriber,
        *,
        pauses: Pauses,
        delays: Delays,
        report: Reporter,
        degraded: Callable[[str | None], None],
        ended: Callable[[SubscriptionEnded], None],
    ) -> None:
        self._subscriber = subscriber
        self._pauses = pauses
        self._delays = delays
        self._report = report
        self._degraded = degraded
        self._ended = ended
        self._pause = _FIRST_PAUSE
        self._failure: str | None = None
        self._is_full = False
        self.open = True
        self.cancelled = False
        self.take: Callable[[], Delivery | Gap | None] = subscriber.take
        delays.watch(self._delayed)

    async def wait(self) -> None:
        """Return when a `take` may succeed, or the intake was stopped. One task at a time."""
        if not self.open:
            return

        try:
            await self.listen()
        except BaseException as error:
            await self.overcome(stream_failure(error))

    async def listen(self) -> None:
        """`wait`, but that it raises what the stream raises. Cancel safety: cancelling it loses nothing."""
        await (self._delays.room() if self._is_full else self._subscriber.wait())

    def interrupt(self) -> None:
        """End the present wait, or the next one. Synchronous."""
        self._subscriber.interrupt()
        self._delays.interrupt()

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
        self.interrupt()
        self._pauses.stop()

    async def _back_off(self, error: Exception) -> None:
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        self._report.stream_failed(error, pause)
        self._failure = f"the stream failed: {error}"
        self._tell()
        await self._pauses.pause(pause)

    def _delayed(self, is_full: bool) -> None:
        self._is_full = is_full
        if self.open:
            self._tell()

    def _tell(self) -> None:
        """How deliveries are taken from here on, and why they are not."""
        reason = self._failure
        self.take = self._subscriber.take if reason is None else self._take_after_failure
        if self._is_full:
            self.take = _take_nothing
            reason = (
                f"{self._delays.limit} deliveries are held for a delay, as many as max_delayed allows; "
                "nothing is taken until one of them is due"
            )

        self._degraded(reason)

    def _take_after_failure(self) -> Delivery | Gap | None:
        delivery = self._subscriber.take()
        if delivery is not None:
            self._pause = _FIRST_PAUSE
            self._failure = None
            self._tell()

        return delivery


def _take_nothing() -> None:
    """What is taken while as many deliveries are held as may be."""


def stream_failure(error: BaseException) -> Exception:
    """What a wait for the stream has raised, as the stream's failure; raises what is none: a cancellation, an exit."""
    if isinstance(error, Exception):
        return error

    if is_cancellation(error) or not isinstance(error, anyio.get_cancelled_exc_class()):
        raise error

    # Let on, a task group would swallow it, and the loop would end without a word.
    return StrayCancellation("the wait for deliveries was cancelled by nobody")
