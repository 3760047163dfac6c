"""Delay: `retry_after` brings a message back, not too early, by the clock of the connection."""

from __future__ import annotations

import math
from typing import ClassVar

import anyio
from pystream.errors import SettlementRejected
from pystream.protocols import Delivery, RetryAfter

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._clock import PausedClock
from pystream_testing.conformance._elsewhere import on_other_loop
from pystream_testing.conformance._failure import ConformanceFailure, expect, within
from pystream_testing.conformance._rig import Stream, connected
from pystream_testing.conformance.subject import Subject

__all__ = ["DelayChecks"]

_DELAY = 0.3
_TICK = 0.05
_LONG = 3600.0


class DelayChecks(CheckGroup):
    """The capability `pystream.protocols.RetryAfter`."""

    group: ClassVar[str] = "delay"

    @check()
    async def test_delay_declared(self, subject: Subject) -> None:
        """Deliveries have the capability exactly where it is declared."""
        declared = subject.capabilities.retry_after
        async with connected(subject) as rig:
            topic = subject.destination("delay-declared")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"capable")
            delivery = await stream.next()
            capable = isinstance(delivery, RetryAfter)
            await stream.ack(delivery)
            expect(
                capable == declared, f"retry_after is {'' if declared else 'not '}declared, and capable is {capable}"
            )

    @check("settlement", "retry_after")
    async def test_delay_comes_back(self, subject: Subject) -> None:
        """A delayed message comes back, once, with its payload, and its count raised where there is one."""
        async with connected(subject) as rig:
            topic = subject.destination("delay-back")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"later", headers={"x-trace": b"t-1"})
            first = await stream.next()
            count = first.delivery_count
            await _delayed(subject, stream, first, 0.05)
            second = await stream.next("a delayed message")
            again, headers = second.delivery_count, dict(second.headers)
            await stream.ack(second)
            expect(headers.get("x-trace") == b"t-1", "a delayed message came back without its headers")
            if count is not None and not subject.capabilities.repeats:
                expect(again == count + 1, f"the count of a delayed message went from {count} to {again}")

            await stream.nothing("a delayed message came back twice")

    @check("settlement", "retry_after", without=("repeats",))
    async def test_delay_not_early(self, subject: Subject) -> None:
        """A delayed message does not come back before its time."""
        async with connected(subject) as rig:
            topic = subject.destination("delay-early")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"later")
            delivery = await stream.next()
            asked = anyio.current_time()
            await _delayed(subject, stream, delivery, _DELAY)
            await stream.ack(await stream.next("a delayed message"))
            # Added, as a clock adds it: the difference of two times in seconds can be a rounding short of the delay.
            early = asked + _DELAY - anyio.current_time()
            expect(early <= 0, f"a delay of {_DELAY:g} s was over {early * 1000:.3g} ms too early")

    @check("settlement", "retry_after", without=("repeats",))
    async def test_delay_by_the_clock(self, subject: Subject) -> None:
        """The delay goes by the clock given to `connect`: nothing comes while it stands."""
        clock = PausedClock()
        async with connected(subject, clock=clock) as rig:
            topic = subject.destination("delay-clock")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"later")
            await _delayed(subject, stream, await stream.next(), _DELAY)
            await anyio.sleep(_DELAY)  # of real time, which must not count
            await stream.nothing("a delay passed while the connection's clock stood still")
            clock.advance(_DELAY)
            await stream.ack(await _next_by(clock, subject, stream))

    @check("settlement", "retry_after")
    async def test_delay_others_pass(self, subject: Subject) -> None:
        """Other messages arrive while one is held for a delay."""
        async with connected(subject) as rig:
            topic = subject.destination("delay-others")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"held")
            await _delayed(subject, stream, await stream.next(), _LONG)
            await rig.publish(topic, b"passing")
            delivery = await stream.next("a message published during another one's delay")
            while delivery.payload == b"held" and subject.capabilities.repeats:
                await stream.ack(delivery)
                delivery = await stream.next("a message published during another one's delay")

            await stream.ack(delivery)
            expect(delivery.payload == b"passing", f"{delivery.payload!r} came during its delay")

    @check("settlement", "retry_after", "backlog")
    async def test_delay_survives_close(self, subject: Subject) -> None:
        """A message that is held for a delay when its subscriber closes comes back on the next connection."""
        async with connected(subject) as rig:
            topic = subject.destination("delay-close")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"held")
            await _delayed(subject, stream, await stream.next(), 1.0)
            expect(stream.subscriber.delayed >= 0, "Subscriber.delayed is no count")
            await rig.reconnect()
            stream = await rig.subscribe(topic)
            await stream.ack(await stream.next("a message that was held when its subscriber closed"))

    @check("settlement", "retry_after")
    async def test_delay_from_another_loop(self, subject: Subject) -> None:
        """A delay asked for on the loop of another thread, which stops right after, is kept."""
        async with connected(subject) as rig:
            topic = subject.destination("delay-elsewhere")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"later")
            delivery = await stream.next()
            stream.returned(delivery)
            await on_other_loop(lambda: _capable(delivery).retry_after(0.05), subject.bounds.step, "retry_after()")
            await stream.ack(await stream.next("a message delayed on another loop"))

    @check("settlement", "retry_after")
    async def test_delay_too_long(self, subject: Subject) -> None:
        """A delay longer than the source's `max_delay` is rejected, and the delivery stays unsettled."""
        async with connected(subject) as rig:
            topic = subject.destination("delay-long")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"too long")
            delivery = await stream.next()
            longest = subject.source(rig.broker, topic, "reader").max_delay
            if longest is not None:
                await _expect_rejected(_capable(delivery), longest + 1)

            await stream.ack(delivery)


async def _delayed(subject: Subject, stream: Stream, delivery: Delivery, delay: float) -> None:
    stream.returned(delivery)
    with within(subject.bounds.step, "retry_after()"):
        await _capable(delivery).retry_after(delay)


async def _next_by(clock: PausedClock, subject: Subject, stream: Stream) -> Delivery:
    """The next delivery, with time passing meanwhile: a plugin may pace what it sends by the clock."""
    for _ in range(math.ceil(subject.bounds.arrival / _TICK)):
        clock.advance(_TICK)
        delivery = await stream.maybe(_TICK)
        if delivery is not None:
            return delivery

    raise ConformanceFailure("a delayed message did not come back after its delay")


async def _expect_rejected(delivery: RetryAfter, delay: float) -> None:
    try:
        await delivery.retry_after(delay)
    except SettlementRejected:
        return

    raise ConformanceFailure(f"a delay of {delay:g} s was accepted, which is longer than the source's max_delay")


def _capable(delivery: Delivery) -> RetryAfter:
    if isinstance(delivery, RetryAfter):
        return delivery

    raise ConformanceFailure("retry_after is declared, and the delivery has no such method")
