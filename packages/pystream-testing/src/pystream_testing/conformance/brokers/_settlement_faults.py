"""Brokers that settle wrongly."""

from __future__ import annotations

from dataclasses import replace
from threading import get_ident
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from pystream.errors import SettlementError
from pystream.memory import MemoryDelivery
from pystream.protocols import Outgoing

from pystream_testing.conformance.brokers._catalogue import Fault
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddDelivery,
    OddSubscriber,
    PlainDelivery,
    at_once,
)
from pystream_testing.conformance.subject import Capabilities

__all__ = ["SETTLEMENT_FAULTS"]


def _copy(delivery: PlainDelivery) -> Outgoing:
    return Outgoing(delivery.destination, delivery.payload, delivery.headers, delivery.key)


async def _publish(delivery: PlainDelivery, outgoing: Outgoing) -> None:
    await delivery.subscriber.connection.inner.publisher().publish(outgoing)


class _LocalAckDelivery(OddDelivery):
    """Acknowledged as far as this connection knows, and nobody else."""

    async def ack(self) -> None:
        self.inner.release()


class _AckLostOnReconnect(OddBroker):
    delivery_type = _LocalAckDelivery


class _HangingAckDelivery(OddDelivery):
    async def ack(self) -> None:
        await anyio.sleep_forever()


class _AckHangs(OddBroker):
    delivery_type = _HangingAckDelivery


class _RejectRequeues(OddDelivery):
    async def reject(self) -> None:
        await self.inner.requeue()


class _RejectedComesBack(OddBroker):
    delivery_type = _RejectRequeues


class _RequeueAcks(OddDelivery):
    async def requeue(self) -> None:
        await self.inner.ack()


class _RequeueDrops(OddBroker):
    delivery_type = _RequeueAcks


class _RequeueCopies(OddDelivery):
    async def requeue(self) -> None:
        await self.inner.ack()
        await _publish(self, replace(_copy(self), headers={}))


class _RequeueLosesHeaders(OddBroker):
    delivery_type = _RequeueCopies


class _RequeueTwice(OddDelivery):
    async def requeue(self) -> None:
        await self.inner.requeue()
        await _publish(self, _copy(self))


class _RequeueRepeats(OddBroker):
    delivery_type = _RequeueTwice


class _UncountedDelivery(OddDelivery):
    @property
    def delivery_count(self) -> int | None:
        return 1


class _CountNeverGrows(OddBroker):
    delivery_type = _UncountedDelivery


class _EndingSubscriber(OddSubscriber):
    """After a requeue it shows nothing but what was requeued."""

    requeued = False

    def take(self) -> PlainDelivery | None:
        while (inner := self.inner.take()) is not None:
            if not self.requeued or inner.delivery_count > 1:
                return self.wrapped(inner)

            inner.release()

        return None


class _EndingDelivery(OddDelivery):
    async def requeue(self) -> None:
        await self.inner.requeue()
        if isinstance(self.subscriber, _EndingSubscriber):
            self.subscriber.requeued = True


class _RequeueEndsSubscription(OddBroker):
    subscriber_type = _EndingSubscriber
    delivery_type = _EndingDelivery


class _CumulativeSubscriber(OddSubscriber):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.taken: list[MemoryDelivery] = []

    def wrapped(self, inner: MemoryDelivery) -> PlainDelivery:
        self.taken.append(inner)
        return super().wrapped(inner)


class _CumulativeDelivery(OddDelivery):
    async def ack(self) -> None:
        await self.inner.ack()
        taken = self.subscriber.taken if isinstance(self.subscriber, _CumulativeSubscriber) else []
        for earlier in taken:
            if earlier.offset < self.inner.offset:
                await _ack_if_open(earlier)

        taken[:] = [inner for inner in taken if inner.offset > self.inner.offset]


async def _ack_if_open(delivery: MemoryDelivery) -> None:
    try:
        await delivery.ack()
    except SettlementError:
        return


class _CumulativeAck(OddBroker):
    subscriber_type = _CumulativeSubscriber
    delivery_type = _CumulativeDelivery


class _ConsumingRelease(OddDelivery):
    def release(self) -> None:
        at_once(_ack_if_open(self.inner))


class _UnsettledConsumed(OddBroker):
    delivery_type = _ConsumingRelease


class _CopyingRelease(OddDelivery):
    def release(self) -> None:
        self.inner.release()
        at_once(_publish(self, _copy(self)))


class _UnsettledBackTwice(OddBroker):
    delivery_type = _CopyingRelease


class _ForgivingDelivery(OddDelivery):
    async def ack(self) -> None:
        await _ack_if_open(self.inner)


class _SettlesTwice(OddBroker):
    delivery_type = _ForgivingDelivery


class _SuspendingDelivery(OddDelivery):
    async def ack(self) -> None:
        await checkpoint()
        await self.inner.ack()


class _AckSuspends(OddBroker):
    delivery_type = _SuspendingDelivery


class _OneLoopDelivery(OddDelivery):
    """Waits, on another thread, for an answer that its loop never gives."""

    async def ack(self) -> None:
        if get_ident() != self.subscriber.inner.thread:
            await anyio.sleep_forever()

        await self.inner.ack()


class _SettlesOnOwnLoopOnly(OddBroker):
    delivery_type = _OneLoopDelivery


class _ForgettingDelivery(OddDelivery):
    """Posts settlements of other threads to the caller's loop, which stops before it can send them."""

    async def reject(self) -> None:
        if get_ident() != self.subscriber.inner.thread:
            self.inner.release()
            return

        await self.inner.reject()

    async def requeue(self) -> None:
        if get_ident() != self.subscriber.inner.thread:
            self.inner.release()
            return

        await self.inner.requeue()


class _SettlesOnCallersLoop(OddBroker):
    delivery_type = _ForgettingDelivery


class _PretendingDelivery(OddDelivery):
    async def requeue(self) -> None:
        """Do nothing, and say nothing."""


class _PretendsToRequeue(OddBroker):
    delivery_type = _PretendingDelivery


SETTLEMENT_FAULTS = (
    Fault(
        name="ack-lost-on-reconnect",
        rejected_by="settlement.ack_consumes",
        because="came back on a new connection",
        broker=_AckLostOnReconnect,
    ),
    Fault(
        name="ack-hangs",
        rejected_by="settlement.ack_consumes",
        because="ack() took longer",
        broker=_AckHangs,
    ),
    Fault(
        name="rejected-comes-back",
        rejected_by="settlement.reject_consumes",
        because="a rejected message came back",
        broker=_RejectedComesBack,
    ),
    Fault(
        name="requeue-drops",
        rejected_by="settlement.requeue_returns",
        because="the arrival of a requeued message took longer",
        broker=_RequeueDrops,
    ),
    Fault(
        name="requeue-loses-headers",
        rejected_by="settlement.requeue_returns",
        because="came back changed",
        broker=_RequeueLosesHeaders,
    ),
    Fault(
        name="requeue-repeats",
        rejected_by="settlement.requeue_returns",
        because="requeued once came back twice",
        broker=_RequeueRepeats,
    ),
    Fault(
        name="count-never-grows",
        rejected_by="settlement.requeue_raises_count",
        because="had the counts [1, 1, 1]",
        broker=_CountNeverGrows,
    ),
    Fault(
        name="requeue-ends-subscription",
        rejected_by="settlement.stream_goes_on_after_requeue",
        because="1 of 2 messages after a requeue arrived",
        broker=_RequeueEndsSubscription,
    ),
    Fault(
        name="cumulative-ack",
        rejected_by="settlement.acks_out_of_order",
        because="0 of 2 messages before an acknowledged one arrived",
        broker=_CumulativeAck,
    ),
    Fault(
        name="unsettled-consumed",
        rejected_by="settlement.unsettled_comes_back_once",
        because="2 of 4 unsettled messages arrived",
        broker=_UnsettledConsumed,
    ),
    Fault(
        name="unsettled-back-twice",
        rejected_by="settlement.unsettled_comes_back_once",
        because="came back twice",
        broker=_UnsettledBackTwice,
    ),
    Fault(
        name="settles-twice",
        rejected_by="settlement.settled_once",
        because="settled twice without an error",
        broker=_SettlesTwice,
    ),
    Fault(
        name="ack-suspends",
        rejected_by="settlement.never_suspends",
        because="ack() suspended",
        broker=_AckSuspends,
    ),
    Fault(
        name="settles-on-own-loop-only",
        rejected_by="settlement.from_another_loop",
        because="ack() took longer",
        broker=_SettlesOnOwnLoopOnly,
    ),
    Fault(
        name="settles-on-callers-loop",
        rejected_by="settlement.from_another_loop",
        because="settled on another loop came back",
        broker=_SettlesOnCallersLoop,
    ),
    Fault(
        name="requeues-on-callers-loop",
        rejected_by="settlement.requeue_from_another_loop",
        because="the arrival of a message requeued on another loop took longer",
        broker=_SettlesOnCallersLoop,
    ),
    Fault(
        name="pretends-to-requeue",
        rejected_by="settlement.unsupported_is_honest",
        because="requeue() is not declared, and did not raise",
        broker=_PretendsToRequeue,
        capabilities=Capabilities(requeue=False),
    ),
)
