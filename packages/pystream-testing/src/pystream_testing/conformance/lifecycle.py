"""Lifecycle: constructing, connecting, waiting, closing, and everything after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

import anyio
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed, SubscriptionEnded
from pystream.protocols import Broker, Mounting, Outgoing

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._construction import watched
from pystream_testing.conformance._elsewhere import in_thread, on_other_loop
from pystream_testing.conformance._failure import ConformanceFailure, expect, within
from pystream_testing.conformance._rig import READER, connected
from pystream_testing.conformance.subject import Subject

__all__ = ["LifecycleChecks"]


class LifecycleChecks(CheckGroup):
    """What a broker, its connection and its handles do from beginning to end."""

    group: ClassVar[str] = "lifecycle"

    @check()
    async def test_lifecycle_construct(self, subject: Subject) -> None:
        """A broker is made at once, without a loop, and starts no I/O, thread or task."""
        _, started = await in_thread(lambda: watched(subject.broker), subject.bounds.construct, "making a broker")
        expect(not started, f"making a broker started {', '.join(started)}")
        before = {task.id for task in anyio.get_running_tasks()}
        subject.broker()
        tasks = [task.name for task in anyio.get_running_tasks() if task.id not in before]
        expect(not tasks, f"making a broker started the tasks {tasks}")

    @check()
    async def test_lifecycle_connect(self, subject: Subject) -> None:
        """A broker connects in time, describes itself, and names the descriptors it takes."""
        async with connected(subject) as rig:
            expect(bool(rig.broker.describe()), "describe() is empty")
            source = subject.source(rig.broker, subject.destination("connect"), READER)
            known = isinstance(source, rig.broker.source_types)
            expect(known, f"source_types does not name {type(source).__name__}, which the broker takes")

    @check()
    async def test_lifecycle_connect_on_another_loop(self, subject: Subject) -> None:
        """A broker that was connected on one loop, and closed, connects on another, and works there."""
        broker = subject.broker()
        bounds = subject.bounds
        await on_other_loop(
            lambda: _connect_and_close(broker), bounds.connect + bounds.shutdown, "connect() and close()"
        )
        async with connected(subject, broker=broker) as rig:
            topic = subject.destination("second-loop")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"on the second loop")
            await stream.ack(await stream.next("a message on the second loop"))

    @check()
    async def test_lifecycle_publish_from_another_loop(self, subject: Subject) -> None:
        """Publishes made first on the loop of another thread, which stops right after, arrive; again, and from here."""
        async with connected(subject) as rig:
            topic = subject.destination("publish-elsewhere")
            stream = await rig.subscribe(topic)
            publisher = rig.connection.publisher(subject.policy)
            for payload in (b"first", b"second"):
                publish = partial(publisher.publish, Outgoing(topic, payload, {}))
                await on_other_loop(publish, subject.bounds.step, "publish()")

            with within(subject.bounds.step, "publish()"):
                await publisher.publish(Outgoing(topic, b"third", {}))

            arrived = await stream.several(3, "messages published on another loop and here")
            await stream.ack(*arrived)
            payloads = sorted(delivery.payload for delivery in arrived)
            expect(payloads == [b"first", b"second", b"third"], f"{payloads} came of first, second and third")

    @check()
    async def test_lifecycle_wait_cancelled(self, subject: Subject) -> None:
        """A wait that is cancelled loses no message."""
        async with connected(subject) as rig:
            topic = subject.destination("wait-cancelled")
            stream = await rig.subscribe(topic)
            for number in range(3):
                await stream.nothing("a message came that nobody published")  # ends in a cancelled wait
                await rig.publish(topic, b"%d" % number)
                delivery = await stream.next("a message published after a cancelled wait")
                await stream.ack(delivery)
                expect(delivery.payload == b"%d" % number, f"{delivery.payload!r} came instead of {number}")

    @check()
    async def test_lifecycle_interrupt(self, subject: Subject) -> None:
        """`interrupt` ends the present wait, and the next one if there is none; it takes nothing away."""
        async with connected(subject) as rig:
            topic = subject.destination("interrupt")
            stream = await rig.subscribe(topic)
            subscriber = stream.subscriber
            stream.take()
            subscriber.interrupt()
            with within(subject.bounds.step, "a wait that was interrupted before it began"):
                await subscriber.wait()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_interrupt_later, subscriber.interrupt)
                with within(subject.bounds.step, "a wait that was interrupted"):
                    stream.take()
                    await subscriber.wait()

            await rig.publish(topic, b"afterwards")
            await stream.ack(await stream.next("a message after an interrupt"))

    @check()
    async def test_lifecycle_take_on_empty(self, subject: Subject) -> None:
        """`take` answers none on a stream where nothing waits, before and after a message."""
        async with connected(subject) as rig:
            topic = subject.destination("empty")
            stream = await rig.subscribe(topic)
            expect(stream.take() is None, "a message came that nobody published")
            await rig.publish(topic, b"only")
            await stream.ack(await stream.next())
            if not subject.capabilities.repeats:
                expect(stream.take() is None, "a message came that nobody published")

    @check()
    async def test_lifecycle_closed_subscriber(self, subject: Subject) -> None:
        """A closed subscriber delivers nothing: `take` answers none and `wait` raises `SubscriptionEnded`."""
        async with connected(subject) as rig:
            topic = subject.destination("closed")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"before")
            stream.release(await stream.next())
            await rig.publish(topic, b"buffered")
            await stream.close()
            expect(stream.take() is None, "a subscriber delivered after its close")
            with within(subject.bounds.step, "wait() on a closed subscriber"):
                await _expect(SubscriptionEnded, stream.subscriber.wait, "wait() on a closed subscriber")

    @check()
    async def test_lifecycle_closed_twice(self, subject: Subject) -> None:
        """Closing again, a subscriber or a connection, has no effect."""
        async with connected(subject) as rig:
            stream = await rig.subscribe(subject.destination("closed-twice"))
            await stream.close()
            await stream.close()
            await rig.close()
            with within(subject.bounds.shutdown, "the second close of a connection"):
                await rig.connection.close()

    @check()
    async def test_lifecycle_handles_after_close(self, subject: Subject) -> None:
        """Every handle of a closed connection raises `BrokerClosed`: unused, used, used on another loop, and new."""
        async with connected(subject) as rig:
            topic = subject.destination("after-close")
            await rig.subscribe(topic)
            message = Outgoing(topic, b"message", {})
            unused, used, elsewhere = (rig.connection.publisher(subject.policy) for _ in range(3))
            with within(subject.bounds.step, "publish()"):
                await used.publish(message)

            await on_other_loop(partial(elsewhere.publish, message), subject.bounds.step, "publish()")
            connection = rig.connection
            await rig.close()
            handles: dict[str, Callable[[], Awaitable[object]]] = {
                "an unused publisher": partial(unused.publish, message),
                "a used publisher": partial(used.publish, message),
                "a publisher used on another loop": partial(elsewhere.publish, message),
                "a new publisher": lambda: connection.publisher(subject.policy).publish(message),
            }
            for what, publish in handles.items():
                with within(subject.bounds.step, f"{what} of a closed connection"):
                    await _expect(BrokerClosed, publish, f"{what} of a closed connection")

            source = subject.source(rig.broker, topic, "another")
            with within(subject.bounds.step, "subscribe() on a closed connection"):
                subscribe = partial(connection.subscribe, source, Mounting(name="another"))
                await _expect(BrokerClosed, subscribe, "subscribe() on a closed connection")


async def _connect_and_close(broker: Broker) -> None:
    connection = await broker.connect(LoopClock())
    await connection.close()


async def _interrupt_later(interrupt: Callable[[], None]) -> None:
    await anyio.sleep(0.01)
    interrupt()


async def _expect(error: type[Exception], call: Callable[[], Awaitable[object]], what: str) -> None:
    try:
        await call()
    except error:
        return

    raise ConformanceFailure(f"{what} did not raise {error.__name__}")
