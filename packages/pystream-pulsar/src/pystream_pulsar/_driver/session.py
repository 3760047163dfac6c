"""`Session`: what one consumer has delivered since it was opened, and how it is settled.

Composes the defences, in the order in which each is asked. A delivery points to the
session it was pulled in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from pystream.errors import BrokerClosed, PyStreamError, SettlementError
from pystream.protocols import Clock

from pystream_pulsar._driver.attempts import Attempts
from pystream_pulsar._driver.defence import Defence, Entry
from pystream_pulsar._driver.in_hand import InHand, Table
from pystream_pulsar._driver.nacks import Nacks
from pystream_pulsar._driver.neighbours import Neighbours
from pystream_pulsar._driver.received import Received
from pystream_pulsar._driver.refusals import check_delay, check_retry
from pystream_pulsar._home import Home
from pystream_pulsar.message import OPEN, PulsarMessage
from pystream_pulsar.subscription import PulsarSubscription
from pystream_pulsar.transport import RawMessage, TransportConsumer

__all__ = ["Session"]

_log = logging.getLogger("pystream_pulsar")

_NACK_AGAIN = 1.0  # seconds until a negative acknowledgement that was refused is tried again


class Session:
    """The deliveries of one consumer.

    Args:
        consumer: Takes the settlements.
        source: The subscription they belong to.
        home: The owner's loop; settlements from elsewhere are handed to it.
        clock: Keeps every time.

    Attributes:
        fast_thread: The thread on which an acknowledgement is nothing but a removal and a call: that of the
            owner's loop, or 0, which is no thread's, while a close, an asked-back entry or a failure count is alive.
        table: The messages in hand, by payload.
        acknowledge: The consumer's acknowledgement.
        late_failures: How many settlements failed after they were accepted from another thread.
    """

    __slots__ = (
        "_awaited",
        "_closed",
        "_consumer",
        "_defences",
        "_home",
        "_in_hand",
        "_nacks",
        "_neighbours",
        "_nobody_awaited",
        "_received",
        "_source",
        "acknowledge",
        "fast_thread",
        "late_failures",
        "table",
    )

    def __init__(self, consumer: TransportConsumer, source: PulsarSubscription, home: Home, clock: Clock) -> None:
        self._consumer = consumer
        self._source = source
        self._home = home
        self._nacks = Nacks(clock, self._ask_back)
        self._in_hand = InHand(adopts=source.topic.persistent)
        self._received = Received(self._in_hand)
        self._neighbours = Neighbours(
            clock,
            in_hand=self._in_hand,
            received=self._received,
            acknowledge=self._acknowledge_copy,
            forgotten=self._forgotten,
        )
        self._defences: tuple[Defence, ...] = (self._nacks, self._neighbours, self._in_hand, Attempts())
        self._awaited: set[PulsarMessage] | None = None
        self._nobody_awaited: Callable[[], None] | None = None
        self._closed = False
        self.acknowledge: Callable[[RawMessage], None] = consumer.ack
        self.fast_thread: int = home.thread
        self.late_failures: int = 0
        self.table: Table = self._in_hand.table

    @property
    def delayed(self) -> int:
        """How many messages are held for a delay."""
        return self._nacks.delayed

    def arrive(self, raws: Sequence[RawMessage], deliver: Callable[[PulsarMessage], object]) -> None:
        """Hand what was pulled to `deliver`, except what the defences keep from the handler."""
        put, careful = self.table.setdefault, not self.fast_thread
        for raw in raws:
            message = PulsarMessage()  # filled here, which takes half the time of an `__init__`
            message._raw = raw
            message._session = self
            message._state = OPEN
            message.payload = payload = raw.payload
            if (careful or put(payload, message) is not message) and self._kept_back(message):
                continue

            deliver(message)

        self._received.remember(raws)

    def settle(self, message: PulsarMessage) -> None:
        """Acknowledge a message, from any thread.

        Raises:
            SettlementError: It was settled or released before, or the client did not take it.
            BrokerClosed: The subscription or its loop is closed.
        """
        self._claim(message)
        if self._home.here():
            self._settle(message)
        else:
            self._home.call(partial(self._late, self._settle, message))

    def retry(self, message: PulsarMessage, delay: float) -> None:
        """Have a message delivered again no sooner than `delay` seconds from now, from any thread.

        Raises:
            SettlementRejected: The delay reaches the acknowledgement timeout, or is no delay.
            SettlementUnsupported: A negative acknowledgement would not do it.
            SettlementError: It was settled or released before.
            BrokerClosed: The subscription or its loop is closed.
        """
        check_delay(self._source, delay)
        check_retry(self._source, message)
        self._claim(message)
        if self._home.here():
            self._hold(message, delay)
        else:
            self._home.call(partial(self._late, self._hold, message, delay))

    def release(self, message: PulsarMessage) -> None:
        """A message will not be settled. From any thread; it stays in hand."""
        try:
            self._home.run(partial(self._done, message))
        except BrokerClosed:
            return

    def begin_close(self, queued: Iterable[PulsarMessage], nobody_awaited: Callable[[], None]) -> None:
        """Note what is awaited: in hand, not queued, neither settled nor released. The rest goes back.

        Args:
            queued: What no handler has seen.
            nobody_awaited: Called once, perhaps at once, when nothing is awaited any more.
        """
        waiting = {*queued, *self._nacks.waiting()}
        self._awaited = {
            message for message in self._in_hand if message not in waiting and message._settled_as != "released"
        }
        self._nobody_awaited = nobody_awaited
        self._refresh()
        self._check_awaited()

    def end(self) -> int:
        """Refuse settlements from here on; how many messages were awaited in vain."""
        self._closed = True
        self._nacks.stop()
        self._neighbours.stop()
        self._refresh()
        return len(self._awaited or ())

    def _kept_back(self, message: PulsarMessage) -> bool:
        return any(defence.arrived(message) for defence in self._defences)

    def _claim(self, message: PulsarMessage) -> None:
        if self._closed:
            raise BrokerClosed(
                f"message {message.id} of {message.topic} cannot be settled: its subscription is closed, "
                "and the server will deliver it again"
            )

        before = message._settled_as
        if not message._claim():
            raise SettlementError(f"message {message.id} of {message.topic} was {before} before")

    def _settle(self, message: PulsarMessage) -> None:
        self._in_hand.remove(message)
        try:
            self.acknowledge(message._raw)
        finally:
            for defence in self._defences:
                defence.settled(message)

            self._done(message)

    def _hold(self, message: PulsarMessage, delay: float) -> None:
        for defence in self._defences:
            defence.held(message, delay)

        self._done(message)

    def _late(self, settlement: Callable[..., None], message: PulsarMessage, *values: float) -> None:
        """A settlement that another thread has left: accepted already, so a failure is only told here."""
        try:
            if self._closed:
                raise BrokerClosed("the subscription was closed meanwhile; the server will deliver it again")

            settlement(message, *values)
        except PyStreamError as error:
            self.late_failures += 1
            _log.warning("message %s of %s was not settled: %s", message.id, message.topic, error)

    def _ask_back(self, messages: Sequence[PulsarMessage]) -> None:
        burst = [message for message in messages if self._nack(message)]
        for defence in self._defences:
            defence.asked_back(burst)

        self._refresh()

    def _nack(self, message: PulsarMessage) -> bool:
        try:
            self._consumer.nack(message._raw)
        except PyStreamError as error:
            _log.warning("message %s of %s was not asked for again: %s", message.id, message.topic, error)
            self._nacks.held(message, _NACK_AGAIN)
            return False

        self._in_hand.remove(message)
        return True

    def _acknowledge_copy(self, message: PulsarMessage) -> None:
        try:
            self.acknowledge(message._raw)
        except PyStreamError as error:
            _log.warning("a copy of message %s of %s was not acknowledged: %s", message.id, message.topic, error)

    def _forgotten(self, entry: Entry) -> None:
        for defence in self._defences:
            defence.cleared(entry)

        self._refresh()

    def _done(self, message: PulsarMessage) -> None:
        self._refresh()
        if self._awaited is not None:
            self._awaited.discard(message)
            self._check_awaited()

    def _check_awaited(self) -> None:
        told = self._nobody_awaited
        if told is not None and not self._awaited:
            self._nobody_awaited = None
            told()

    def _refresh(self) -> None:
        fast = self._awaited is None and all(defence.quiet for defence in self._defences)
        self.fast_thread = self._home.thread if fast else 0
