"""Trap 7: a receive that is cancelled swallows a later message, so none ever is.

`ArmedDrain` takes what waits in the client without waiting itself. It asks with a
callback: the client answers in line when a message waits, and else keeps the request,
which stays *armed* here until a message comes, however many pulls that takes. A poll costs
a third of a request, but blocks for 0.1 ms when nothing waits, and beside an armed request
it would be answered out of order. So it is ventured only after a full pull, or when a pull has
had many answers in line: more waits then in all likelihood, and nothing is armed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pystream_pulsar._client import binding
from pystream_pulsar._client.callbacks import guarded
from pystream_pulsar._client.thread_states import keep_thread_state

__all__ = ["ArmedDrain"]

_MANY = 16
"""So many answers in line, one after the other, make a poll worth its risk."""


class ArmedDrain:
    """What a consumer of the binding has received, without waiting and without losing any.

    Args:
        consumer: The binding's consumer.
        wake: Called once per arming, on the client's thread, when a message or the end has
            come; in line for an end found during a pull.
    """

    __slots__ = ("_answer", "_armed", "_callback", "_consumer", "_full", "_lock", "_wake", "ended")

    def __init__(self, consumer: Any, wake: Callable[[], None]) -> None:
        self._consumer = consumer
        self._wake = guarded(wake)
        self._lock = threading.Lock()
        self._callback = guarded(self._answered)
        self._answer: Any = None
        self._armed = False
        self._full = False
        self.ended: str | None = None
        """The name of the result that ended the stream, or none while it lasts."""

    def pull(self, room: int) -> list[Any]:
        """Up to `room` (1 or more) messages. Fewer means armed, or ended; `wake` follows either."""
        messages: list[Any] = []
        if self._full:
            self._poll(messages, room)
        elif self._armed:
            message = self._take_answer()
            if message is None:
                return messages

            messages.append(message)

        while len(messages) < room:
            message = self._ask()
            if message is None:
                break

            messages.append(message)
            if len(messages) == _MANY:
                self._poll(messages, room)

        self._full = len(messages) >= room
        return messages

    def _take_answer(self) -> Any:
        with self._lock:
            message, self._answer = self._answer, None
            self._armed = message is None

        return message

    def _ask(self) -> Any:
        if self.ended is not None:
            return None

        self._consumer.receive_async(self._callback)
        with self._lock:
            message, self._answer = self._answer, None
            ended = self.ended is not None
            self._armed = message is None and not ended

        if ended:
            self._wake()

        return message

    def _poll(self, messages: list[Any], room: int) -> None:
        try:
            binding.poll(self._consumer, messages, room)
        except binding.NativeError:
            return  # closed: the request that follows is told the same

    def _answered(self, result: Any, message: Any) -> None:
        keep_thread_state()
        with self._lock:
            if int(result):
                self.ended = binding.result_name(result)
            else:
                self._answer = message

            owed = self._armed

        if owed:
            self._wake()
