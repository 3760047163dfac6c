"""What the checks drive a broker with: a connection, and streams on which every wait is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.lowlevel import checkpoint
from pystream.clock import LoopClock
from pystream.errors import PyStreamError, SettlementUnsupported, SubscriptionEnded
from pystream.protocols import GAP, Broker, Clock, ConnectedBroker, Delivery, Key, Mounting, Outgoing, Subscriber

from pystream_testing.conformance._failure import ConformanceFailure, expect, within
from pystream_testing.conformance.subject import Subject

__all__ = ["READER", "Rig", "Stream", "connected"]

READER = "reader"
"""The subscription of the checks that need one only."""

_BROKEN_PAUSE = 0.01


class Stream:
    """A subscriber, its waits bounded.

    Args:
        subject: Says the bounds, and what is claimed.
        subscriber: The broker's own.
        done: Payloads that were acknowledged on this subscription, kept over new connections: where
            repeats are declared, what is in here is not shown again.
    """

    def __init__(self, subject: Subject, subscriber: Subscriber, done: set[bytes]) -> None:
        self.subscriber = subscriber
        self._subject = subject
        self._bounds = subject.bounds
        self._done = done
        self._in_hand: set[bytes] = set()

    def take(self) -> Delivery | None:
        """What `Subscriber.take` answers, a cut in the stream left out."""
        try:
            delivery = self.subscriber.take()
        except Exception as error:
            raise ConformanceFailure(f"take() raised {type(error).__name__}; it never raises") from error

        return None if delivery is GAP else delivery

    async def next(self, what: str = "a message") -> Delivery:
        """The next delivery, within the bound for an arrival."""
        delivery = await self.maybe(self._bounds.arrival)
        if delivery is None:
            raise ConformanceFailure(f"the arrival of {what} took longer than {self._bounds.arrival:g} s")

        return delivery

    async def several(self, count: int, what: str = "messages") -> list[Delivery]:
        """So many deliveries, within the bound for one arrival."""
        deliveries: list[Delivery] = []
        with anyio.move_on_after(self._bounds.arrival):
            while len(deliveries) < count:
                deliveries.append(await self._arrival())

        expect(len(deliveries) == count, f"{len(deliveries)} of {count} {what} arrived")
        return deliveries

    async def nothing(self, but: str) -> None:
        """See that nothing comes; `but` says what it means if something does."""
        delivery = await self.maybe(self._bounds.silence)
        if delivery is not None:
            raise ConformanceFailure(f"{but}: {delivery.payload[:40]!r} came")

    async def maybe(self, seconds: float) -> Delivery | None:
        """The next delivery if one comes within so many seconds."""
        with anyio.move_on_after(seconds):
            return await self._arrival()

        return None

    async def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge; where no settlement is declared, see that it is refused honestly."""
        for delivery in deliveries:
            with within(self._bounds.step, "ack()"):
                try:
                    await delivery.ack()
                except SettlementUnsupported:
                    if self._subject.capabilities.settlement:
                        raise

            self.settled(delivery)

    async def reject(self, delivery: Delivery) -> None:
        """Reject."""
        with within(self._bounds.step, "reject()"):
            await delivery.reject()

        self.settled(delivery)

    async def requeue(self, delivery: Delivery) -> None:
        """Have it handed out again."""
        self.returned(delivery)
        with within(self._bounds.step, "requeue()"):
            await delivery.requeue()

    def release(self, *deliveries: Delivery) -> None:
        """Say that they will not be settled."""
        for delivery in deliveries:
            delivery.release()
            self.returned(delivery)

    def settled(self, delivery: Delivery) -> None:
        """Note that it was settled for good."""
        self._in_hand.discard(delivery.payload)
        self._done.add(delivery.payload)

    def returned(self, delivery: Delivery) -> None:
        """Note that it is to come again."""
        self._in_hand.discard(delivery.payload)

    async def close(self) -> None:
        """Close the subscriber, within the bound."""
        with within(self._bounds.shutdown, "closing a subscriber"):
            await self.subscriber.close()

    async def _arrival(self) -> Delivery:
        while True:
            delivery = self.take()
            if delivery is None:
                await checkpoint()  # a wait that never suspends must not defeat the bound
                await self._wait()
            elif not await self._is_repeat(delivery):
                self._in_hand.add(delivery.payload)
                return delivery

    async def _wait(self) -> None:
        try:
            await self.subscriber.wait()
        except SubscriptionEnded:
            raise
        except PyStreamError:  # broken for now: another wait tries again
            await anyio.sleep(_BROKEN_PAUSE)

    async def _is_repeat(self, delivery: Delivery) -> bool:
        if not self._subject.capabilities.repeats:
            return False

        if delivery.payload not in self._done and delivery.payload not in self._in_hand:
            return False

        await delivery.ack()
        return True


class Rig:
    """A broker under test and its present connection.

    Attributes:
        broker: The broker's configuration.
        connection: The present connection.
    """

    connection: ConnectedBroker

    def __init__(self, subject: Subject, broker: Broker, clock: Clock | None = None) -> None:
        self.broker = broker
        self._subject = subject
        self._bounds = subject.bounds
        self._clock = clock
        self._streams: list[Stream] = []
        self._done: dict[tuple[str, str], set[bytes]] = {}

    async def connect(self) -> None:
        """Connect, within the bound."""
        with within(self._bounds.connect, "connect()"):
            self.connection = await self.broker.connect(self._clock or LoopClock())

    async def subscribe(self, destination: str, subscription: str = READER) -> Stream:
        """Open a subscription."""
        source = self._subject.source(self.broker, destination, subscription)
        with within(self._bounds.step, "subscribe()"):
            subscriber = await self.connection.subscribe(source, Mounting(name=subscription))

        stream = Stream(self._subject, subscriber, self.done(destination, subscription))
        self._streams.append(stream)
        return stream

    def done(self, destination: str, subscription: str = READER) -> set[bytes]:
        """The payloads acknowledged on a subscription."""
        return self._done.setdefault((destination, subscription), set())

    async def publish(
        self,
        destination: str,
        *payloads: bytes,
        headers: Mapping[str, bytes] | None = None,
        key: Key | None = None,
    ) -> None:
        """Publish messages one after the other."""
        publisher = self.connection.publisher(self._subject.policy)
        for payload in payloads:
            with within(self._bounds.step, "publish()"):
                await publisher.publish(Outgoing(destination, payload, headers or {}, key))

    async def reconnect(self) -> None:
        """Close everything in the order of a service, and connect again."""
        await self.close()
        await self.connect()

    async def close(self) -> None:
        """Close the subscribers, then the connection, each within the bound."""
        streams, self._streams = self._streams, []
        for stream in streams:
            await stream.close()

        with within(self._bounds.shutdown, "closing the connection"):
            await self.connection.close()


@asynccontextmanager
async def connected(
    subject: Subject, *, broker: Broker | None = None, clock: Clock | None = None
) -> AsyncIterator[Rig]:
    """A broker, new if none is given, connected; closed at the end, whatever became of the check."""
    rig = Rig(subject, broker or subject.broker(), clock)
    await rig.connect()
    try:
        yield rig
    except BaseException:
        with anyio.move_on_after(subject.bounds.shutdown, shield=True):
            await _close_quietly(rig)

        raise

    await rig.close()


async def _close_quietly(rig: Rig) -> None:
    # The check has failed already, and that failure is to be seen.
    with suppress(Exception):
        await rig.close()
