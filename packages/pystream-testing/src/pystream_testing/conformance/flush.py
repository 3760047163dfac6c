"""Flush: what was made right before an end takes effect, and what comes after it does not pretend to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

import anyio
from pystream.errors import PyStreamError

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._failure import expect
from pystream_testing.conformance._rig import connected
from pystream_testing.conformance.subject import Subject

__all__ = ["FlushChecks"]


class FlushChecks(CheckGroup):
    """Settlements and publishes around the end of a subscriber and its connection."""

    group: ClassVar[str] = "flush"

    @check("settlement")
    async def test_flush_ack_right_before_close(self, subject: Subject) -> None:
        """Acknowledgements made right before the close take effect."""
        async with connected(subject) as rig:
            topic = subject.destination("late-ack")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"1", b"2", b"3")
            deliveries = await stream.several(3)
            await stream.ack(*deliveries)
            await rig.reconnect()
            await (await rig.subscribe(topic)).nothing("an acknowledgement made right before the close was lost")

    @check("backlog")
    async def test_flush_publish_right_before_close(self, subject: Subject) -> None:
        """A publish that was confirmed right before the close has arrived."""
        async with connected(subject) as rig:
            topic = subject.destination("late-publish")
            await (await rig.subscribe(topic)).close()
            await rig.publish(topic, b"late")
            await rig.reconnect()
            stream = await rig.subscribe(topic)
            await stream.ack(await stream.next("what was published right before the close"))

    @check("settlement")
    async def test_flush_settles_while_closing(self, subject: Subject) -> None:
        """While a close waits for what is in hand, an acknowledgement works, takes effect, and lets it end."""
        async with connected(subject) as rig:
            topic = subject.destination("closing")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"in hand")
            delivery = await stream.next()
            async with anyio.create_task_group() as closing:
                closing.start_soon(stream.close)
                await anyio.wait_all_tasks_blocked()
                refusal = await _refusal(delivery.ack)

            stream.settled(delivery)
            expect(refusal is None, f"an acknowledgement was refused while the subscriber was closing: {refusal}")
            await rig.reconnect()
            await (await rig.subscribe(topic)).nothing("a message acknowledged during a close came back")

    @check("settlement", "backlog")
    async def test_flush_ack_after_close(self, subject: Subject) -> None:
        """An acknowledgement after the close raises, and the message comes back."""
        async with connected(subject) as rig:
            topic = subject.destination("after-close")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"held")
            delivery = await stream.next()
            await rig.close()
            refusal = await _refusal(delivery.ack)
            expect(refusal is not None, "an acknowledgement after the close claimed to have been made")
            await rig.connect()
            stream = await rig.subscribe(topic)
            await stream.ack(await stream.next("a message that was held across a close"))


async def _refusal(ack: Callable[[], Awaitable[None]]) -> str | None:
    """Why an acknowledgement was refused, or none if it was made."""
    try:
        await ack()
    except PyStreamError as error:
        return str(error) or type(error).__name__

    return None
