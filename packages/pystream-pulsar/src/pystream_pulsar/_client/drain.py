"""Trap 7: a receive that is cancelled swallows a later message, so none ever is.

`ArmedDrain` takes what waits in the client without waiting itself. It asks with a
callback: the client answers in line when a message waits, and else keeps the request,
which stays *armed* here until a message comes, however many pulls that takes. Once a
request was answered in line and the last pull was full, the rest is polled, which costs
half; an empty poll costs 0.1 ms, and a poll beside an armed request would be answered
out of order, so neither is ventured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pystream_pulsar._client import binding
from pystream_pulsar._client.callbacks import guarded
from pystream_pulsar._client.thread_states import keep_thread_state

__all__ = ["ArmedDrain"]


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
        message = self._take_answer() if self._armed else self._ask()
        if message is None:
            return []

        messages = [message]
        if self._full:
            self._poll(messages, room)

        while len(messages) < room:
            message = self._ask()
            if message is None:
                break

            messages.append(message)

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
            while len(messages) < room:
                message = binding.poll(self._consumer)
                if message is None:
                    return

                messages.append(message)

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
