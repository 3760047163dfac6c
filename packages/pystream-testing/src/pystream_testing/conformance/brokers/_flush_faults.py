"""Brokers that lose or pretend at the end, or break the drain law."""

from __future__ import annotations

from collections import deque
from typing import Any

from pystream.errors import BrokerClosed, SettlementError
from pystream.memory import MemoryDelivery
from pystream.protocols import Outgoing

from pystream_testing.conformance.brokers._catalogue import Fault
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddConnection,
    OddDelivery,
    OddPublisher,
    OddSubscriber,
    PlainDelivery,
    at_once,
)
from pystream_testing.conformance.drain import FORMS

__all__ = ["FLUSH_FAULTS"]


class _LazySubscriber(OddSubscriber):
    """Sends acknowledgements with the next take, and forgets them when it closes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.acknowledged: list[MemoryDelivery] = []

    def take(self) -> PlainDelivery | None:
        while self.acknowledged:
            at_once(self.acknowledged.pop().ack())

        return super().take()

    async def close(self) -> None:
        while self.acknowledged:
            self.acknowledged.pop().release()

        await super().close()


class _LazyDelivery(OddDelivery):
    async def ack(self) -> None:
        if isinstance(self.subscriber, _LazySubscriber):
            self.subscriber.acknowledged.append(self.inner)


class _AckLostAtShutdown(OddBroker):
    subscriber_type = _LazySubscriber
    delivery_type = _LazyDelivery


class _BufferingConnection(OddConnection):
    """Sends publishes once somebody takes, and forgets them when it closes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pending: list[Outgoing] = []

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        for outgoing in pending:
            at_once(self.inner.publisher().publish(outgoing))


class _BufferingPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        if isinstance(self.connection, _BufferingConnection) and not self.connection.closed:
            self.connection.pending.append(outgoing)
            return

        await super().publish(outgoing, options)


class _FlushingSubscriber(OddSubscriber):
    def take(self) -> PlainDelivery | None:
        if isinstance(self.connection, _BufferingConnection):
            self.connection.flush()

        return super().take()


class _PublishLostAtShutdown(OddBroker):
    connection_type = _BufferingConnection
    publisher_type = _BufferingPublisher
    subscriber_type = _FlushingSubscriber


class _StrictDelivery(OddDelivery):
    async def ack(self) -> None:
        if self.subscriber.closed:
            raise BrokerClosed("the subscriber is closing")

        await self.inner.ack()


class _RefusesWhileClosing(OddBroker):
    delivery_type = _StrictDelivery


class _ClaimingDelivery(OddDelivery):
    async def ack(self) -> None:
        try:
            await self.inner.ack()
        except BrokerClosed:
            return


class _ClaimsAfterClose(OddBroker):
    delivery_type = _ClaimingDelivery


class _ConsumingSubscriber(OddSubscriber):
    """Gives nothing back when it closes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._taken: list[MemoryDelivery] = []

    def wrapped(self, inner: MemoryDelivery) -> PlainDelivery:
        self._taken.append(inner)
        return super().wrapped(inner)

    async def close(self) -> None:
        for inner in self._taken:
            try:
                await inner.ack()
            except (SettlementError, BrokerClosed):
                continue

        await super().close()


class _ConsumesHeld(OddBroker):
    subscriber_type = _ConsumingSubscriber


class _EagerDelivery(OddDelivery):
    """Settled when it was handed out; every later answer is only noted."""

    def __init__(self, inner: MemoryDelivery, subscriber: OddSubscriber) -> None:
        super().__init__(inner, subscriber)
        at_once(inner.ack())

    async def ack(self) -> None:
        """Do nothing: it was acknowledged."""

    def release(self) -> None:
        """Do nothing: it was acknowledged."""


class _AcksOnTake(OddBroker):
    delivery_type = _EagerDelivery


class _ReadingAheadSubscriber(OddSubscriber):
    """Reads ahead, acknowledging, and forgets what was not taken when it closes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ahead: deque[MemoryDelivery] = deque()

    def take(self) -> PlainDelivery | None:
        if self.closed:
            return None

        while len(self._ahead) < 8 and (inner := self.inner.take()) is not None:
            self._ahead.append(inner)

        return self.wrapped(self._ahead.popleft()) if self._ahead else None

    async def close(self) -> None:
        while self._ahead:
            await self._ahead.popleft().ack()

        await super().close()


class _ForgetsReadAhead(OddBroker):
    subscriber_type = _ReadingAheadSubscriber


FLUSH_FAULTS = (
    Fault(
        name="ack-lost-at-shutdown",
        rejected_by="flush.ack_right_before_close",
        because="made right before the close was lost",
        broker=_AckLostAtShutdown,
    ),
    Fault(
        name="publish-lost-at-shutdown",
        rejected_by="flush.publish_right_before_close",
        because="the arrival of what was published right before the close took longer",
        broker=_PublishLostAtShutdown,
    ),
    Fault(
        name="refuses-while-closing",
        rejected_by="flush.settles_while_closing",
        because="refused while the subscriber was closing",
        broker=_RefusesWhileClosing,
    ),
    Fault(
        name="claims-after-close",
        rejected_by="flush.ack_after_close",
        because="claimed to have been made",
        broker=_ClaimsAfterClose,
    ),
    Fault(
        name="consumes-what-is-held",
        rejected_by="flush.ack_after_close",
        because="the arrival of a message that was held across a close took longer",
        broker=_ConsumesHeld,
    ),
    *(
        Fault(
            name=f"acks-on-take-{form.replace('_', '-')}",
            rejected_by=f"drain.cut_short_{form}",
            because="lost without being handled",
            broker=_AcksOnTake,
        )
        for form in FORMS
    ),
    *(
        Fault(
            name=f"forgets-read-ahead-{form.replace('_', '-')}",
            rejected_by=f"drain.{form}",
            because="lost without being handled",
            broker=_ForgetsReadAhead,
        )
        for form in FORMS
    ),
)
