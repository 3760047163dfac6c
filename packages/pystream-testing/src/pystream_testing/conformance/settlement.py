"""Settlement: what each answer does to a delivery, from any loop, and once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from pystream.errors import SettlementError, SettlementUnsupported

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._elsewhere import on_other_loop
from pystream_testing.conformance._failure import ConformanceFailure, expect, within
from pystream_testing.conformance._rig import connected
from pystream_testing.conformance.subject import Subject

__all__ = ["SettlementChecks"]


class SettlementChecks(CheckGroup):
    """What acknowledging, rejecting, requeueing and giving back do."""

    group: ClassVar[str] = "settlement"

    @check("settlement")
    async def test_settlement_ack_consumes(self, subject: Subject) -> None:
        """An acknowledged message does not come again, on this connection or the next."""
        async with connected(subject) as rig:
            topic = subject.destination("ack")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"1", b"2", b"3")
            await stream.ack(*await stream.several(3))
            await stream.nothing("an acknowledged message came back")
            await rig.reconnect()
            await (await rig.subscribe(topic)).nothing("an acknowledged message came back on a new connection")

    @check("settlement")
    async def test_settlement_reject_consumes(self, subject: Subject) -> None:
        """A rejected message does not come again, on this connection or the next."""
        async with connected(subject) as rig:
            topic = subject.destination("reject")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"rejected")
            await stream.reject(await stream.next())
            await stream.nothing("a rejected message came back")
            await rig.reconnect()
            await (await rig.subscribe(topic)).nothing("a rejected message came back on a new connection")

    @check("settlement", "requeue")
    async def test_settlement_requeue_returns(self, subject: Subject) -> None:
        """A requeued message comes back, with its payload, headers and key; acknowledged then, it stays away."""
        headers = {"x-trace": b"t-1"}
        key = "customer-1" if subject.capabilities.keys else None
        async with connected(subject) as rig:
            topic = subject.destination("requeue")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"again", headers=headers, key=key)
            first = await stream.next()
            before = first.payload, dict(first.headers), first.key
            await stream.requeue(first)
            second = await stream.next("a requeued message")
            after = second.payload, dict(second.headers), second.key
            await stream.ack(second)
            expect(before == after, f"a requeued message came back changed: {before} became {after}")
            await stream.nothing("a message that was requeued once came back twice")

    @check("settlement", "requeue", "counts", without=("repeats",))
    async def test_settlement_requeue_raises_count(self, subject: Subject) -> None:
        """Each requeue raises the count by one."""
        async with connected(subject) as rig:
            topic = subject.destination("requeue-count")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"counted")
            counts = []
            for _ in range(3):
                delivery = await stream.next("a requeued message")
                counts.append(delivery.delivery_count)
                await (stream.requeue(delivery) if len(counts) < 3 else stream.ack(delivery))

        expect(counts == [1, 2, 3], f"a message that was requeued twice had the counts {counts}")

    @check("settlement", "requeue")
    async def test_settlement_stream_goes_on_after_requeue(self, subject: Subject) -> None:
        """Messages published after a requeue arrive as before."""
        async with connected(subject) as rig:
            topic = subject.destination("requeue-on")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"requeued")
            await stream.requeue(await stream.next())
            await rig.publish(topic, b"later")
            arrived = await stream.several(2, "messages after a requeue")
            await stream.ack(*arrived)
            found = {delivery.payload for delivery in arrived}
            expect(found == {b"requeued", b"later"}, f"after a requeue only {sorted(found)} came")

    @check()
    async def test_settlement_unsupported_is_honest(self, subject: Subject) -> None:
        """A settlement that is not declared raises `SettlementUnsupported` and leaves the delivery unsettled."""
        capable = subject.capabilities
        async with connected(subject) as rig:
            topic = subject.destination("unsupported")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"unsupported")
            delivery = await stream.next()
            if not (capable.settlement and capable.requeue):
                await _expect_unsupported("requeue", delivery.requeue)

            if not capable.settlement:
                await _expect_unsupported("ack", delivery.ack)
                await _expect_unsupported("reject", delivery.reject)
                stream.release(delivery)
            else:
                await stream.ack(delivery)

    @check("settlement", "backlog")
    async def test_settlement_acks_out_of_order(self, subject: Subject) -> None:
        """An acknowledgement consumes its own message and no earlier one."""
        async with connected(subject) as rig:
            topic = subject.destination("out-of-order")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"1", b"2", b"3")
            deliveries = {delivery.payload: delivery for delivery in await stream.several(3)}
            await stream.ack(deliveries[b"3"])
            stream.release(deliveries[b"1"], deliveries[b"2"])
            await rig.reconnect()
            stream = await rig.subscribe(topic)
            back = await stream.several(2, "messages before an acknowledged one")
            await stream.ack(*back)
            payloads = sorted(delivery.payload for delivery in back)
            expect(payloads == [b"1", b"2"], f"{payloads} came back, and b'1' and b'2' were unsettled")

    @check("settlement", "backlog")
    async def test_settlement_unsettled_comes_back_once(self, subject: Subject) -> None:
        """What was released unsettled, and what was not taken, comes back exactly once on the next connection."""
        async with connected(subject) as rig:
            topic = subject.destination("unsettled")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"1", b"2", b"3", b"4")
            stream.release(*await stream.several(2))
            await rig.reconnect()
            stream = await rig.subscribe(topic)
            back = await stream.several(4, "unsettled messages")
            await stream.ack(*back)
            payloads = sorted(delivery.payload for delivery in back)
            expect(payloads == [b"1", b"2", b"3", b"4"], f"{payloads} came back of four unsettled messages")
            await stream.nothing("an unsettled message came back twice")

    @check("settlement")
    async def test_settlement_settled_once(self, subject: Subject) -> None:
        """A second settlement raises `SettlementError`, whatever it is; a late release has no effect."""
        async with connected(subject) as rig:
            topic = subject.destination("settled-once")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"ack", b"reject")
            first, second = await stream.several(2)
            await stream.ack(first)
            await stream.reject(second)
            for delivery in (first, second):
                for again in (delivery.ack, delivery.reject, delivery.requeue):
                    await _expect_refused(again, "a delivery was settled twice without an error")

                delivery.release()

            await stream.nothing("a settled message came back after a release")

    @check("settlement")
    async def test_settlement_never_suspends(self, subject: Subject) -> None:
        """On the owner's loop a settlement ends without a suspension."""
        async with connected(subject) as rig:
            topic = subject.destination("suspends")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"ack", b"reject")
            first, second = await stream.several(2)
            _at_once(first.ack(), "ack()")
            _at_once(second.reject(), "reject()")
            stream.settled(first)
            stream.settled(second)
            if subject.capabilities.requeue:
                await rig.publish(topic, b"requeue")
                third = await stream.next()
                stream.returned(third)
                _at_once(third.requeue(), "requeue()")
                await stream.ack(await stream.next("a requeued message"))

    @check("settlement")
    async def test_settlement_from_another_loop(self, subject: Subject) -> None:
        """Settlements made on the loop of another thread, which stops right after, take effect; twice in a row."""
        async with connected(subject) as rig:
            topic = subject.destination("elsewhere")
            stream = await rig.subscribe(topic)
            for round_ in (b"first", b"second"):
                await rig.publish(topic, b"ack " + round_, b"reject " + round_)
                one, two = await stream.several(2)
                await _elsewhere(subject, one.ack, "ack()")
                await _elsewhere(subject, two.reject, "reject()")
                stream.settled(one)
                stream.settled(two)

            await stream.nothing("a message settled on another loop came back")
            await rig.reconnect()
            stream = await rig.subscribe(topic)
            await stream.nothing("a message settled on another loop came back on a new connection")

    @check("settlement", "requeue")
    async def test_settlement_requeue_from_another_loop(self, subject: Subject) -> None:
        """A requeue made on the loop of another thread, which stops right after, brings the message back."""
        async with connected(subject) as rig:
            topic = subject.destination("requeue-elsewhere")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"again")
            delivery = await stream.next()
            stream.returned(delivery)
            await _elsewhere(subject, delivery.requeue, "requeue()")
            await stream.ack(await stream.next("a message requeued on another loop"))


async def _elsewhere(subject: Subject, settlement: Callable[[], Awaitable[None]], what: str) -> None:
    await on_other_loop(settlement, subject.bounds.step, what)


async def _expect_unsupported(name: str, settlement: Callable[[], Awaitable[None]]) -> None:
    try:
        await settlement()
    except SettlementUnsupported:
        return

    raise ConformanceFailure(f"{name}() is not declared, and did not raise SettlementUnsupported")


async def _expect_refused(settlement: Callable[[], Awaitable[None]], failure: str) -> None:
    try:
        with within(2.0, "a second settlement"):
            await settlement()
    except SettlementError:
        return

    raise ConformanceFailure(failure)


def _at_once(settlement: Coroutine[Any, Any, None], what: str) -> None:
    try:
        settlement.send(None)
    except StopIteration:
        return

    settlement.close()
    raise ConformanceFailure(f"{what} suspended on the owner's loop")
