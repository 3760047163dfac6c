"""Brokers that delay wrongly."""

from __future__ import annotations

from functools import partial
from typing import Any

from pystream.clock import LoopClock
from pystream.memory import MemoryDelivery, MemorySubscription
from pystream.protocols import Clock, Mounting, SubscriptionSource

from pystream_testing.conformance.brokers._catalogue import Fault
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddConnection,
    OddDelivery,
    OddSubscriber,
    PlainDelivery,
    at_once,
)

__all__ = ["DELAY_FAULTS"]


class _EarlyDelivery(OddDelivery):
    async def retry_after(self, delay: float) -> None:
        await self.inner.retry_after(delay / 2)


class _DelayEarly(OddBroker):
    delivery_type = _EarlyDelivery


class _ImpatientDelivery(OddDelivery):
    async def retry_after(self, delay: float) -> None:
        await self.inner.requeue()


class _DelayIgnored(OddBroker):
    delivery_type = _ImpatientDelivery


class _LastingDelivery(OddDelivery):
    async def retry_after(self, delay: float) -> None:
        await self.inner.retry_after(delay * 1000)


class _DelayNeverOver(OddBroker):
    delivery_type = _LastingDelivery


class _RealTime(OddBroker):
    """Keeps time by the loop, whatever clock it is given."""

    async def connect(self, clock: Clock) -> OddConnection:
        return await super().connect(LoopClock())


class _BlockingSubscriber(OddSubscriber):
    def take(self) -> PlainDelivery | None:
        return None if self.delayed else super().take()


class _DelayBlocks(OddBroker):
    subscriber_type = _BlockingSubscriber


class _HoldingSubscriber(OddSubscriber):
    """Holds delayed messages itself, and drops them when it closes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held: list[MemoryDelivery] = []

    def hold(self, inner: MemoryDelivery, delay: float) -> None:
        self._held.append(inner)
        self.connection.clock.call_later(delay, partial(self._let_go, inner))

    def _let_go(self, inner: MemoryDelivery) -> None:
        if inner in self._held:
            self._held.remove(inner)
            at_once(inner.requeue())

    async def close(self) -> None:
        while self._held:
            await self._held.pop().ack()

        await super().close()


class _HeldDelivery(OddDelivery):
    async def retry_after(self, delay: float) -> None:
        if isinstance(self.subscriber, _HoldingSubscriber):
            self.subscriber.hold(self.inner, delay)


class _HeldLostAtClose(OddBroker):
    subscriber_type = _HoldingSubscriber
    delivery_type = _HeldDelivery


class _OneLoopDelivery(OddDelivery):
    """Sets its timer on the caller's loop, which may be gone before it fires."""

    async def retry_after(self, delay: float) -> None:
        def requeue() -> None:
            at_once(self.inner.requeue())

        LoopClock().call_later(delay, requeue)


class _DelayOnCallersLoop(OddBroker):
    delivery_type = _OneLoopDelivery


class _BoundedSource:
    """A memory subscription that says how long it can hold a delay, and then holds any."""

    def __init__(self, inner: MemorySubscription) -> None:
        self.inner = inner
        self.name = inner.name
        self.retry = inner.retry
        self.batch_wait = inner.batch_wait
        self.max_delay = 60.0
        self.copies_to = inner.copies_to
        self.parameters = inner.parameters


class _BoundedConnection(OddConnection):
    async def subscribe(self, source: Any, mounting: Mounting) -> OddSubscriber:
        return await super().subscribe(source.inner, mounting)


class _HoldsAnyDelay(OddBroker):
    connection_type = _BoundedConnection

    @property
    def source_types(self) -> tuple[type, ...]:
        return (_BoundedSource,)

    def default_source(self, name: str) -> SubscriptionSource:
        return _BoundedSource(self.inner.default_source(name))


class _Incapable(OddBroker):
    delivery_type = PlainDelivery


DELAY_FAULTS = (
    Fault(name="delay-early", rejected_by="delay.not_early", because="too early", broker=_DelayEarly),
    Fault(name="delay-ignored", rejected_by="delay.not_early", because="too early", broker=_DelayIgnored),
    Fault(
        name="delay-never-over",
        rejected_by="delay.comes_back",
        because="the arrival of a delayed message took longer",
        broker=_DelayNeverOver,
    ),
    Fault(
        name="delay-by-another-clock",
        rejected_by="delay.by_the_clock",
        because="while the connection's clock stood still",
        broker=_RealTime,
    ),
    Fault(
        name="delay-blocks-others",
        rejected_by="delay.others_pass",
        because="the arrival of a message published during another one's delay took longer",
        broker=_DelayBlocks,
    ),
    Fault(
        name="delayed-lost-at-close",
        rejected_by="delay.survives_close",
        because="the arrival of a message that was held when its subscriber closed took longer",
        broker=_HeldLostAtClose,
    ),
    Fault(
        name="delay-on-callers-loop",
        rejected_by="delay.from_another_loop",
        because="the arrival of a message delayed on another loop took longer",
        broker=_DelayOnCallersLoop,
    ),
    Fault(
        name="accepts-any-delay",
        rejected_by="delay.too_long",
        because="a delay of 61 s was accepted",
        broker=_HoldsAnyDelay,
    ),
    Fault(
        name="lies-about-delays",
        rejected_by="delay.declared",
        because="retry_after is declared, and capable is False",
        broker=_Incapable,
    ),
)
