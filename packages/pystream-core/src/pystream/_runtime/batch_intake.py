"""Gathers what an intake gives into batches, and answers as an intake does."""

from __future__ import annotations

from anyio.lowlevel import checkpoint

from pystream._runtime.batch import Batch
from pystream._runtime.intake import Intake, stream_failure
from pystream.protocols import GAP, Clock, Delivery, Timer

_STREAK = 64
"""So many deliveries handed on without a wait, then a checkpoint: others run too, however large a batch is."""


class BatchIntake:
    """One subscription's stream in batches of 1 to `size` deliveries.

    The first delivery of a batch is waited for without limit. The batch is closed when it is
    full, `wait` seconds after its first delivery was taken, when a seek cuts the stream, when
    the stream fails or ends, and at the stop. A failure is dealt with once the batch has gone
    out. Everything belongs to the subscription's loop.

    Args:
        intake: What the deliveries are taken from.
        size: The most deliveries of a batch, 1 or more.
        wait: How long a batch may fill, in seconds, above 0.
        clock: The time this goes by.
    """

    __slots__ = (
        "_clock",
        "_failure",
        "_intake",
        "_is_due",
        "_is_failing",
        "_partial",
        "_size",
        "_streak",
        "_timer",
        "_wait",
    )

    def __init__(self, intake: Intake, *, size: int, wait: float, clock: Clock) -> None:
        self._intake = intake
        self._size = size
        self._wait = wait
        self._clock = clock
        self._partial: list[Delivery] = []
        self._timer: Timer | None = None
        self._is_due = False
        self._failure: Exception | None = None
        self._is_failing = False
        self._streak = 0

    @property
    def open(self) -> bool:
        """Whether more may be taken: after a stop, what is being filled."""
        return self._intake.open or bool(self._partial)

    @property
    def cancelled(self) -> bool:
        """Whether what was taken is being cancelled."""
        return self._intake.cancelled

    @property
    def filling(self) -> int:
        """How many deliveries wait for their batch to be closed."""
        return len(self._partial)

    def take(self) -> Batch | None:
        """The next batch that is closed, or none."""
        if self._streak >= _STREAK or self._is_failing:
            return None

        partial = self._partial
        if not self._is_closed and not self._fill(partial):
            return None

        if not partial:
            return None

        self._partial, self._is_due = [], False
        self._streak += len(partial)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        return Batch(partial)

    async def wait(self) -> None:
        """Return when a `take` may succeed, or the intake was stopped. One task at a time.

        Cancel safety: cancelling it takes nothing from the batch that is being filled.
        """
        streak, self._streak = self._streak, 0
        if streak >= _STREAK:
            await checkpoint()
            return

        if self._partial:
            if not self._is_closed:
                await self._wait_for_more()
        elif self._failure is not None:
            failure, self._failure = self._failure, None
            await self._overcome(failure)
        elif self._intake.open:
            await self._wait_for_more()

    def close(self) -> None:
        """Have the batch that is being filled, if there is one, handed on as it is. Synchronous."""
        if self._partial:
            self._is_due = True
            self._intake.interrupt()

    def stop(self) -> None:
        """Take nothing more; what is being filled is handed on. Synchronous, idempotent."""
        self._intake.stop()

    def give_back(self) -> None:
        """Release what is being filled: nobody will take it any more. Synchronous, idempotent."""
        for delivery in self._partial:
            delivery.release()

        self._partial = []
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _is_closed(self) -> bool:
        return self._is_due or self._failure is not None or not self._intake.open

    def _fill(self, partial: list[Delivery]) -> bool:
        """Take what is there; answers whether that closes the batch."""
        intake, size = self._intake, self._size
        while len(partial) < size:
            delivery = intake.take()
            if delivery is None:
                if partial and self._timer is None:
                    # The first one was taken just now, or the timer would run.
                    self._timer = self._clock.call_later(self._wait, self.close)

                return False

            if delivery is not GAP:
                partial.append(delivery)
            elif partial:
                return True

        return True

    async def _wait_for_more(self) -> None:
        try:
            await self._intake.listen()
        except BaseException as error:
            failure = stream_failure(error)
            if self._partial:
                self._failure = failure
            else:
                await self._overcome(failure)

    async def _overcome(self, failure: Exception) -> None:
        # Nothing is taken meanwhile: nobody waits, so nobody would see that a batch is due.
        self._is_failing = True
        try:
            await self._intake.overcome(failure)
        finally:
            self._is_failing = False
