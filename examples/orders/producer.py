"""The producer: publishes the plan over lanes, so that what must stay in order is sent in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import anyio
from pystream import Out, PyStreamError

from examples.orders.books import Sent
from examples.orders.plan import LANES, Messages, Planned
from examples.orders.service import PLACED_AT, Movement, Order, Topics

__all__ = ["Producer"]


class Producer:
    """Publishes with bounded concurrency: each lane waits for a confirmation before it sends on.

    Args:
        publisher: Of the running app.
        topics: Where orders and movements go.
        sent: Notes what the broker has confirmed.
        stopped: Whether to end; asked before each message, so that none is cut short.
    """

    def __init__(self, publisher: Out[object], topics: Topics, sent: Sent, stopped: Callable[[], bool]) -> None:
        self._publisher = publisher
        self._topics = topics
        self._sent = sent
        self._stopped = stopped
        self._failure: PyStreamError | None = None

    async def publish(self, messages_of: Messages) -> None:
        """Publish what the lanes hold.

        Args:
            messages_of: The messages of a lane.

        Raises:
            PyStreamError: A publish has failed; the other lanes end then too.

        Cancel safety: a message on its way may or may not have been published.
        """
        start = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for lane in range(LANES):
                tasks.start_soon(self._lane, messages_of(lane), start)

        if self._failure is not None:
            raise self._failure

    async def _lane(self, messages: Iterator[Planned], start: float) -> None:
        for message in messages:
            if message.due is not None:
                await anyio.sleep_until(start + message.due)

            if self._failure is not None or self._stopped():
                return

            try:
                await self._send(message)
            except PyStreamError as error:
                self._failure = error
                return

    async def _send(self, message: Planned) -> None:
        topic = self._topics.stock if isinstance(message.value, Movement) else self._topics.orders
        headers = None if message.due is None else {PLACED_AT: repr(time.monotonic())}
        await self._publisher.publish(message.value, topic, key=message.key, headers=headers)
        self._note(message.value)

    def _note(self, value: object) -> None:
        match value:
            case Order():
                self._sent.orders.add(value.id)
            case Movement():
                self._sent.movements.add(value.id)
            case _:
                self._sent.unreadable += 1
