"""`Reader`: the task that reads new entries, over a connection of its own since it waits on the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
from pystream.errors import PyStreamError, SubscriptionEnded
from pystream.signal import Signal

from pystream_redis._group import Entry, Group
from pystream_redis._link import BrokenLink, Link, Refusal
from pystream_redis._pipe import Pipe

__all__ = ["BLOCK", "Reader"]

BLOCK = 2.0
"""Seconds that the server waits for an entry before it answers with none."""

_UNBLOCK_EVERY = 0.05


class Reader:
    """Reads while there is room, until it is stopped.

    Args:
        link: Nobody else uses it.
        group: The consumer.
        room: How many entries may come.
        arrived: Given what has come.
        failed: Given why nothing has come; the reader then waits for `resume`, unless it was
            a `SubscriptionEnded`: then it ends.
    """

    __slots__ = ("_arrived", "_failed", "_group", "_link", "_resume", "_room", "_stopping", "ended")

    def __init__(
        self,
        link: Link,
        group: Group,
        *,
        room: Callable[[], int],
        arrived: Callable[[Sequence[Entry]], object],
        failed: Callable[[PyStreamError], object],
    ) -> None:
        self._link = link
        self._group = group
        self._room = room
        self._arrived = arrived
        self._failed = failed
        self._resume = Signal()
        self._stopping = False
        self.ended = anyio.Event()

    def resume(self) -> None:
        """There is room again, or it may try again after a failure. Synchronous."""
        self._resume.wake()

    async def run(self) -> None:
        """The task."""
        try:
            while not self._stopping:
                if self._room() > 0:
                    await self._read()
                else:
                    await self._resume.wait()
        finally:
            self.ended.set()

    async def stop(self, pipe: Pipe) -> None:
        """Read no more, and return when all that was handed out has arrived. Bounded by the caller.

        A wait on the server is ended by the server, not by a cancellation: that would leave
        open whether it had handed out something.
        """
        self._stopping = True
        self._resume.wake()
        while not self.ended.is_set():
            if self._link.id is not None:
                with suppress(BrokenLink):  # then the reader's link is, too, or will be found to be
                    await pipe.ask(("CLIENT", "UNBLOCK", self._link.id))

            with anyio.move_on_after(_UNBLOCK_EVERY):
                await self.ended.wait()

    async def _read(self) -> None:
        try:
            [answer] = await self._link.run([self._group.reading(self._room(), BLOCK)])
        except BrokenLink as error:
            self._failed(error)
            await self._resume.wait()
            return

        if isinstance(answer, Refusal):
            await self._refused(answer)
        elif answer:
            self._arrived([Entry(entry, fields, 1) for entry, fields in answer[0][1]])

    async def _refused(self, refusal: Refusal) -> None:
        if str(refusal).startswith(("NOGROUP", "WRONGTYPE", "UNBLOCKED")):
            self._stopping = True
            self._failed(SubscriptionEnded(f"the stream or its group was removed: {refusal}"))
            return

        self._failed(refusal)
        await self._resume.wait()
