"""`Settlements`: those of one subscriber on their way to the server."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pystream.protocols import Clock
from pystream.signal import Signal

from pystream_redis._link import Answer, BrokenLink, Command
from pystream_redis._pipe import Pipe
from pystream_redis.delivery import RedisDelivery

__all__ = ["Settlements"]

_log = logging.getLogger("pystream_redis")

_AGAIN = 0.2
"""Seconds until a settlement is sent again after the link was lost: each of them may be made twice."""


class Settlements:
    """Sends settlements, again while the link is down, and tells those that the server refuses.

    Args:
        pipe: Sends the commands.
        clock: Times the repeats.

    Attributes:
        failed: How many were accepted and not made.
    """

    __slots__ = ("_clock", "_done", "_pipe", "_under_way", "failed")

    def __init__(self, pipe: Pipe, clock: Clock) -> None:
        self._pipe = pipe
        self._clock = clock
        self._under_way: set[RedisDelivery] = set()
        self._done = Signal()
        self.failed = 0

    def send(self, delivery: RedisDelivery, command: Command, then: Callable[[Answer], object]) -> None:
        """Have a settlement made. Synchronous, from any thread.

        Args:
            delivery: What is settled.
            command: What makes it; it may be sent more than once.
            then: Called once on the owner's loop with the server's answer, if there is one.

        Raises:
            BrokerClosed: The connection was closed.
        """
        self._under_way.add(delivery)
        try:
            self._pipe.send(command, lambda answer: self._answered(answer, delivery, command, then))
        except BaseException:
            self._under_way.discard(delivery)
            raise

    async def flush(self) -> None:
        """Return when every settlement was made or has failed.

        Cancel safety: cancelling it changes nothing.
        """
        while self._under_way:
            await self._done.wait()

    def _answered(
        self, answer: Answer, delivery: RedisDelivery, command: Command, then: Callable[[Answer], object]
    ) -> None:
        if isinstance(answer, BrokenLink):
            self._clock.call_later(_AGAIN, lambda: self._again(delivery, command, then))
            return

        if isinstance(answer, Exception):
            self._give_up(delivery, answer)
        else:
            then(answer)

        self._under_way.discard(delivery)
        self._done.wake()

    def _again(self, delivery: RedisDelivery, command: Command, then: Callable[[Answer], object]) -> None:
        try:
            self.send(delivery, command, then)
        except Exception as error:  # the connection was closed meanwhile
            self._give_up(delivery, error)
            self._done.wake()

    def _give_up(self, delivery: RedisDelivery, error: Exception) -> None:
        self.failed += 1
        _log.warning("%s was not settled: %s; it will be handed out again", delivery.id, error)
