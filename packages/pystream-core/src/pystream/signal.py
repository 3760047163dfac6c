"""`Signal`: one task sleeps, anybody wakes it, from any thread, on any loop."""

from __future__ import annotations

from collections.abc import Callable

from pystream._loops import Loop, Waiter, current_loop

__all__ = ["LoopCall", "Signal"]


class Signal:
    """A wake-up for one waiter, on asyncio, uvloop and trio.

    May be made anywhere; it belongs to the loop of its first `wait`. A wake-up that comes
    while nobody waits is kept; several count as one. Half the price of an `anyio.Event`,
    and reusable (`protocols.Signal` is the contract).
    """

    __slots__ = ("_kept", "_loop", "_make_waiter", "_posted", "_waiter")

    def __init__(self) -> None:
        self._loop: Loop | None = None
        self._waiter: Waiter | None = None
        self._kept = False
        self._posted = False

    async def wait(self) -> None:
        """Return once a wake-up has come since the last `wait` returned.

        Raises:
            RuntimeError: Another task waits already.

        Cancel safety: a cancelled wait loses no wake-up.
        """
        if self._loop is None:
            # Before the look at `_kept`: a thread that wakes us from here on either sees
            # the loop and posts to it, or has set `_kept` before we look.
            self._loop = loop = current_loop()
            self._make_waiter = loop.waiter

        if self._kept:
            self._kept = False
            return

        if self._waiter is not None:
            raise RuntimeError("a Signal has one waiter, and another task waits already")

        waiter = self._waiter = self._make_waiter()
        try:
            await waiter
        except BaseException:
            self._waiter = None
            if waiter.done() and not waiter.cancelled():  # woken, and cancelled before it could run
                self._kept = True

            raise

        self._waiter = None
        self._kept = False

    def wake(self) -> None:
        """Wake the waiter. Synchronous; only on the waiter's loop."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._kept = True  # also of a sleep that is cancelled and has not noticed yet
        else:
            waiter.set_result(None)

    def wake_from_thread(self) -> None:
        """Wake the waiter from any thread. Coalesced; without effect on a closed loop; never raises."""
        if self._loop is None:
            self._kept = True
            if self._loop is None:
                return

        if not self._posted:
            self._posted = True
            self._loop.post(self._deliver)

    def _deliver(self) -> None:
        self._posted = False  # first: what a thread has added since then posts again
        self.wake()


class LoopCall:
    """A call that any thread may request of the loop on which this object was made.

    For plugins that take settlements or publishes from other threads: what is to be done
    waits in a deque of theirs, and the call serves it.

    Args:
        callback: Called on the loop, outside any task; must not raise.
    """

    __slots__ = ("_callback", "_loop", "_requested")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = current_loop()
        self._requested = False

    def request(self) -> bool:
        """Have the callback called soon. From any thread; requests that wait count as one.

        Returns:
            Whether it will be called: false once the loop is closed.
        """
        if self._requested:
            return True

        self._requested = True
        if self._loop.post(self._call):
            return True

        self._requested = False
        return False

    def _call(self) -> None:
        self._requested = False  # first: what a thread adds from here on requests again
        self._callback()
