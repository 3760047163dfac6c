"""What a memory broker keeps: topics, durable subscriptions, and the mail of other threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock, get_ident

from pystream.memory.cursor import Cursor
from pystream.memory.log import Log
from pystream.protocols import Key
from pystream.signal import Signal

__all__ = ["Message", "Store", "Subscription", "Topic"]


class Message:
    """A published message as it is stored; shared by all subscriptions, so never changed."""

    __slots__ = ("destination", "headers", "key", "payload")

    def __init__(self, destination: str, payload: bytes, headers: Mapping[str, bytes], key: Key | None) -> None:
        self.destination: str = destination
        self.payload: bytes = payload
        self.headers: Mapping[str, bytes] = headers
        self.key: Key | None = key


class Subscription:
    """The durable part of a subscription: it outlives its subscribers.

    Attributes:
        topic: Where its messages come from.
        cursor: How far it has read and acknowledged.
        counts: How often a message was handed out, for those handed out again.
        taken: Whether a subscriber is open.
    """

    __slots__ = ("counts", "cursor", "taken", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic: Topic = topic
        self.cursor: Cursor = Cursor(topic.log.end)
        self.counts: dict[int, int] = {}
        self.taken: bool = False


class Topic:
    """The log of one name, its subscriptions by the names of their mountings, and who is listening."""

    __slots__ = ("listening", "log", "subscriptions")

    def __init__(self) -> None:
        self.log: Log[Message] = Log()
        self.subscriptions: dict[str, Subscription] = {}
        # Replaced, never changed, so that other threads may walk over it.
        self.listening: tuple[Signal, ...] = ()

    def subscription(self, name: str) -> Subscription:
        """The subscription of that name, made if it is new."""
        found = self.subscriptions.get(name)
        if found is None:
            found = self.subscriptions[name] = Subscription(self)

        return found

    def listen(self, signal: Signal) -> None:
        """Have `signal` woken by every new message."""
        self.listening = (*self.listening, signal)

    def unlisten(self, signal: Signal) -> None:
        """Undo `listen`."""
        self.listening = tuple(other for other in self.listening if other is not signal)

    def append(self, message: Message) -> None:
        """Store a message for the subscriptions there are. On the owner's thread."""
        self.log.append(message)
        for signal in self.listening:
            signal.wake()

    def wake_from_thread(self) -> None:
        """Tell the listening subscribers that there is mail."""
        for signal in self.listening:
            signal.wake_from_thread()

    def trim(self) -> None:
        """Forget what every subscription has acknowledged."""
        self.log.trim(min(subscription.cursor.mark for subscription in self.subscriptions.values()))


class Store:
    """The state of one memory broker, owned by one thread at a time.

    The owner changes it without a lock. Other threads leave mail: calls, which the owner
    makes before it does anything else. The lock is between mail and closing, so that what
    was accepted is never lost; the owner takes it only to close.

    Attributes:
        topics: By name; a topic is there from its first subscription on.
        mail: Calls left by other threads, oldest first.
        lock: Held while mail is left, and while a handle is marked as closed.
        thread: The owner.
    """

    __slots__ = ("lock", "mail", "thread", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.mail: deque[Callable[[], object]] = deque()
        self.lock: Lock = Lock()
        self.thread: int = get_ident()

    def topic(self, name: str) -> Topic:
        """The topic of that name, made if it is new. On the owner's thread."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = Topic()

        return found

    def read_mail(self) -> None:
        """Make the calls that other threads have left. On the owner's thread."""
        # Only what is there now: threads that never stop must not keep the owner here.
        for _ in range(len(self.mail)):
            self.mail.popleft()()
