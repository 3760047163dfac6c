"""`Keeper`: the task that shows the server that this consumer lives, and takes over from those that do not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from pystream.errors import PyStreamError
from pystream.protocols import Clock
from pystream.signal import Signal

from pystream_redis._group import Entry, Group

__all__ = ["Keeper"]

_log = logging.getLogger("pystream_redis")


class Keeper:
    """Renews what is pending here, and claims what others have left, every `period` seconds of the clock.

    Args:
        group: The consumer.
        clock: Times the looks.
        period: Seconds between two of them.
        mine: The ids of the entries that are pending here and known.
        room: How many entries may come.
        claimed: Given what has come.
    """

    __slots__ = ("_claimed", "_clock", "_group", "_mine", "_period", "_room", "_tick", "more")

    def __init__(
        self,
        group: Group,
        clock: Clock,
        period: float,
        *,
        mine: Collection[bytes],
        room: Callable[[], int],
        claimed: Callable[[Sequence[Entry]], object],
    ) -> None:
        self._group = group
        self._clock = clock
        self._period = period
        self._mine = mine
        self._room = room
        self._claimed = claimed
        self._tick = Signal()
        self.more = False
        """Whether there was more to claim than room."""

    def look(self) -> None:
        """Do not wait for the period to pass. Synchronous."""
        self.more = False
        self._tick.wake()

    async def claim(self) -> None:
        """Claim what there is room for.

        Raises:
            Refusal: The server will not.
            BrokenLink: It has not answered.
        """
        room = self._room()
        if room > 0:
            claimed = await self._group.claim(room, self._mine.__contains__)
            self.more = len(claimed) >= room
            self._claimed(claimed)

    async def run(self) -> None:
        """The task."""
        while True:
            timer = self._clock.call_later(self._period, self._tick.wake)
            try:
                await self._tick.wait()
            finally:
                timer.cancel()

            try:
                await self._group.renew(self._mine)
                await self.claim()
            except PyStreamError as error:  # the reader meets it too, and tells the service
                _log.debug("pending entries were not looked after: %s", error)
