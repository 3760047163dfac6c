"""`Pipe`: commands from any thread, sent over one connection in batches and in their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import NamedTuple

import anyio
from pystream.background import Background
from pystream.errors import BrokerClosed
from pystream.signal import Signal

from pystream_redis._link import Answer, BrokenLink, Command, Link

__all__ = ["Pipe"]

_BATCH = 256
_CLOSE_BOUND = 2.0


class _Sent(NamedTuple):
    command: Command
    then: Callable[[Answer], object]


class Pipe:
    """Commands on their way over one link, written by one task. Belongs to the loop it is made on.

    Args:
        link: Nobody else uses it.
        closed: What is raised once it is closed.
    """

    def __init__(self, link: Link, closed: Callable[[], BrokerClosed]) -> None:
        self._link = link
        self._refusal = closed
        self._waiting: deque[_Sent] = deque()
        self._busy = False
        self._closed = False
        # Held while one looks at `_closed` and adds: nothing is added to a pipe nobody empties.
        self._lock = threading.Lock()
        self._signal = Signal()
        self._idle = Signal()
        self._thread = get_ident()
        self._background = Background()
        self._background.start(self._write, name="pystream-redis writer")

    def send(self, command: Command, then: Callable[[Answer], object]) -> None:
        """Have a command sent. Synchronous, from any thread.

        Args:
            command: Its words.
            then: Called once on the owner's loop with the server's answer, a `Refusal`, a
                `BrokenLink` if there is none, or a `BrokerClosed`; must not raise.

        Raises:
            BrokerClosed: The connection was closed; the command is not sent.
        """
        with self._lock:
            if self._closed:
                raise self._refusal()

            self._waiting.append(_Sent(command, then))

        if get_ident() == self._thread:
            self._signal.wake()
        else:
            self._signal.wake_from_thread()

    async def ask(self, *commands: Command) -> list[Answer]:
        """Send commands and return their answers, refusals included. From any loop or thread.

        Raises:
            BrokenLink: One of them has no answer.
            BrokerClosed: The connection was closed.

        Cancel safety: a cancelled ask may or may not have been sent.
        """
        answers: list[Answer] = [None] * len(commands)
        missing = set(range(len(commands)))
        done, thread = Signal(), get_ident()

        def answered(place: int, answer: Answer) -> None:
            answers[place] = answer
            missing.discard(place)
            if missing:
                return

            if thread == self._thread:
                done.wake()
            else:
                done.wake_from_thread()

        for place, command in enumerate(commands):
            self.send(command, partial(answered, place))

        while missing:
            await done.wait()

        for answer in answers:
            if isinstance(answer, BrokenLink | BrokerClosed):
                raise answer

        return answers

    async def close(self) -> None:
        """Send what waits, within 2 seconds, and refuse the rest. Idempotent.

        Cancel safety: a cancelled close leaves it closed.
        """
        with self._lock:
            self._closed = True

        try:
            with anyio.move_on_after(_CLOSE_BOUND):
                while self._busy or self._waiting:
                    await self._idle.wait()
        finally:
            await self._background.close()
            self._answer(self._waiting, [self._refusal() for _ in self._waiting])
            self._waiting.clear()
            await self._link.close()

    async def _write(self) -> None:
        while True:
            await self._signal.wait()
            while self._waiting:
                await self._write_batch()

            self._idle.wake()

    async def _write_batch(self) -> None:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(len(waiting), _BATCH))]
        self._busy = True
        answers: Sequence[Answer] = [self._refusal() for _ in batch]  # if this is cancelled: by the close
        try:
            answers = await self._link.run([sent.command for sent in batch])
        except BrokenLink as error:
            # One each: an exception raised in many tasks would gather the tracebacks of all.
            answers = [BrokenLink(*error.args) for _ in batch]
        finally:
            self._busy = False
            self._answer(batch, answers)

    @staticmethod
    def _answer(batch: Sequence[_Sent] | deque[_Sent], answers: Sequence[Answer]) -> None:
        for sent, answer in zip(batch, answers, strict=True):
            sent.then(answer)
