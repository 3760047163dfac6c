"""`ConnectedMemoryBroker`: one connection to a memory broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import anyio

from pystream.errors import PublishError, SubscribeError
from pystream.memory.publisher import MemoryPublisher, MemoryPublishPolicy, check_policy, closed, stored_form
from pystream.memory.subscriber import MemorySubscriber
from pystream.memory.subscription import MemorySubscription, name_refusal
from pystream.protocols import Mounting, Outgoing

if TYPE_CHECKING:
    from pystream.memory._store import Message, Store, Subscription, Topic
    from pystream.protocols import Clock

__all__ = ["ConnectedMemoryBroker"]


class ConnectedMemoryBroker:
    """A live connection; made by `MemoryBroker.connect`. Belongs to the loop it was made on."""

    __slots__ = ("_address", "_clock", "_closed", "_on_closed", "_store", "_subscribers")

    def __init__(
        self, address: str, store: Store, clock: Clock, on_closed: Callable[[ConnectedMemoryBroker], object]
    ) -> None:
        self._address = address
        self._store = store
        self._clock = clock
        self._on_closed = on_closed
        self._subscribers: dict[Subscription, MemorySubscriber] = {}
        self._closed = False

    async def subscribe(self, source: Any, mounting: Mounting) -> MemorySubscriber:
        """Open the subscription of one mounted handler.

        The source's name and the mounting's name together identify it. It exists from the
        first time it is opened, for as long as the broker object does: it gets every message
        published from then on, also while no service runs.

        Raises:
            SubscribeError: The source is none of this broker's, or the subscription is open already.
            BrokerClosed: The connection was closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        if self._closed:
            raise closed(self._address)

        if not isinstance(source, MemorySubscription):
            raise SubscribeError(
                f"subscription {mounting.name!r}: {self._address} takes a MemorySubscription,"
                f" and its source is a {type(source).__name__}"
            )

        # First the mail: what was published before the subscription exists is not for it.
        self._store.read_mail()
        subscription = self._store.topic(source.name).subscription(mounting.name)
        if subscription.taken:
            raise SubscribeError(
                f"subscription {mounting.name!r} of {source.name!r} is open already on {self._address};"
                " close it first, or mount the handler under another name"
            )

        subscriber = MemorySubscriber(mounting.name, self._store, subscription, self._clock)
        self._subscribers[subscription] = subscriber
        return subscriber

    def publisher(self, policy: Any = None) -> MemoryPublisher:
        """A publisher over this connection. No I/O.

        Raises:
            ConfigurationError: The policy is none of this broker's.
        """
        check_policy(policy, self._address)
        return MemoryPublisher(self._address, self)

    def default_policy(self) -> MemoryPublishPolicy:
        """The one policy there is."""
        return MemoryPublishPolicy()

    async def close(self) -> None:
        """End every handle of this connection; they raise `BrokerClosed` afterwards. Idempotent.

        Cancel safety: a cancelled close leaves the connection closed and everything given back.
        """
        self._mark_closed()
        try:
            async with anyio.create_task_group() as closing:
                for subscriber in self._subscribers.values():
                    closing.start_soon(subscriber.close)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without a loop: give everything back at once. Synchronous, idempotent."""
        self._mark_closed()
        for subscriber in self._subscribers.values():
            subscriber.give_back()

        self._subscribers.clear()
        self._on_closed(self)

    def store(self, outgoing: Outgoing) -> None:
        """Store a message, from any thread; from another than the owner's it is left as mail.

        Raises:
            PublishError: It cannot be stored.
            BrokerClosed: The connection was closed.
        """
        store = self._store
        topic = self._topic(outgoing.destination)
        message = stored_form(outgoing)
        if get_ident() != store.thread:
            self._leave(topic, message)
            return

        if self._closed:
            raise closed(self._address)

        if store.mail:
            store.read_mail()

        if topic is not None:
            topic.append(message)

    def _topic(self, destination: object) -> Topic | None:
        if isinstance(destination, str):
            # The name of a topic needs no second look.
            topic = self._store.topics.get(destination)
            if topic is not None:
                return topic

        refusal = name_refusal(destination)
        if refusal is not None:
            raise PublishError(f"destination refused: {refusal}")

        return None

    def _leave(self, topic: Topic | None, message: Message) -> None:
        with self._store.lock:
            if self._closed:
                raise closed(self._address)

            if topic is None:
                return

            self._store.mail.append(partial(topic.append, message))

        topic.wake_from_thread()

    def _mark_closed(self) -> None:
        with self._store.lock:
            self._closed = True
