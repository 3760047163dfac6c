"""The stream: waiting, interrupting, fanning out, closing."""

from __future__ import annotations

import anyio
import pytest
from pystream.errors import SubscriptionEnded

from tests.core.memory.support import all_taken, at_once, connected, outgoing, payloads, subscribed, taken
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.anyio


@pytest.mark.promise("MEMORY-1")
async def test_every_subscription_gets_every_message() -> None:
    """Handlers of one name each get all of it, and settle independently of each other."""
    broker, connection = await connected()
    one = await subscribed(connection, name="one")
    await connection.publisher().publish(outgoing(b"1"))
    two = await subscribed(connection, name="two")
    other = await subscribed(connection, to="payments", name="one")
    await connection.publisher().publish(outgoing(b"2"))
    for delivery in all_taken(one):
        await delivery.ack()

    assert payloads(all_taken(two)) == [b"2"]
    assert other.take() is None
    assert broker.stored("orders") == 1


@pytest.mark.promise("MEMORY-7")
async def test_the_log_is_trimmed_as_the_slowest_subscription_advances() -> None:
    """The log begins at the oldest message that some subscription has not acknowledged."""
    broker, connection = await connected()
    fast, slow = await subscribed(connection, name="fast"), await subscribed(connection, name="slow")
    for _ in range(200):
        await connection.publisher().publish(outgoing())

    ahead, behind = all_taken(fast), all_taken(slow)
    for delivery in ahead:
        await delivery.ack()

    assert broker.stored("orders") == 200
    for delivery in behind[1:150]:
        await delivery.ack()

    assert broker.stored("orders") == 200
    await behind[0].ack()
    assert broker.stored("orders") == 50


@pytest.mark.promise("MEMORY-7")
async def test_the_log_is_trimmed_without_being_asked() -> None:
    """A busy subscription leaves at most 64 done messages in the log, an idle one none."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    log = subscriber._log
    for _ in range(200):
        await connection.publisher().publish(outgoing())

    for _ in range(200):
        delivery = taken(subscriber)
        await delivery.ack()
        assert log.end - log.first <= 200 - delivery.offset + 63

    assert subscriber.take() is None
    assert len(log) == 0


@pytest.mark.promise("MEMORY-17")
async def test_a_wait_ends_when_something_was_published() -> None:
    """A sleeping subscriber is woken by a publish, once for each time there is nothing left."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    came: list[bytes] = []

    async def consume() -> None:
        while len(came) < 3:
            await subscriber.wait()
            came.extend(payloads(all_taken(subscriber)))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            for number in range(3):
                await anyio.wait_all_tasks_blocked()
                await connection.publisher().publish(outgoing(b"%d" % number))

    assert came == [b"0", b"1", b"2"]


@pytest.mark.promise("MEMORY-5", "MEMORY-17")
@pytest.mark.parametrize("delay", [None, 3.0])
async def test_a_wait_ends_when_a_redelivery_is_due(delay: float | None) -> None:
    """A requeue wakes the sleeper at once, a delayed retry when its time has come."""
    clock = ManualClock()
    _, connection = await connected(clock=clock)
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(b"1"))
    delivery = taken(subscriber)
    counts: list[int] = []

    async def consume() -> None:
        while (again := subscriber.take()) is None:
            await subscriber.wait()

        counts.append(again.delivery_count)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await anyio.wait_all_tasks_blocked()
            await (delivery.requeue() if delay is None else delivery.retry_after(delay))
            await anyio.wait_all_tasks_blocked()
            assert counts == ([2] if delay is None else [])
            clock.advance(delay or 0)

    assert counts == [2]


@pytest.mark.promise("MEMORY-17")
async def test_a_wait_does_not_sleep_while_something_is_there() -> None:
    """With a message, a redelivery or a backlog at hand a wait returns at once, however often it is called."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    for body in (b"1", b"2"):
        await connection.publisher().publish(outgoing(body))

    for _ in range(3):
        at_once(subscriber.wait())

    await taken(subscriber).requeue()
    await taken(subscriber).ack()
    for _ in range(3):
        at_once(subscriber.wait())

    await subscriber.close()
    again = await subscribed(connection)
    for _ in range(3):
        at_once(again.wait())


@pytest.mark.promise("MEMORY-17")
async def test_an_interrupt_ends_the_present_wait_or_the_next() -> None:
    """An interrupt is kept for the next wait if nobody waits, and takes nothing away."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    subscriber.interrupt()
    at_once(subscriber.wait())
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscriber.wait)
            await anyio.wait_all_tasks_blocked()
            subscriber.interrupt()


@pytest.mark.promise("MEMORY-17")
async def test_a_cancelled_wait_loses_nothing() -> None:
    """What is published while a wait is being cancelled is there for the next take."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscriber.wait)
            await anyio.wait_all_tasks_blocked()
            await connection.publisher().publish(outgoing(b"1"))
            tasks.cancel_scope.cancel()

    at_once(subscriber.wait())
    assert payloads(all_taken(subscriber)) == [b"1"]


@pytest.mark.promise("MEMORY-6")
async def test_unsettled_messages_come_back_first_and_in_order() -> None:
    """At the next start the unsettled ones precede the unseen, in the order of the log."""
    clock = ManualClock()
    broker, connection = await connected(clock=clock)
    subscriber = await subscribed(connection)
    for number in range(6):
        await connection.publisher().publish(outgoing(b"%d" % number))

    deliveries = [taken(subscriber) for _ in range(5)]
    await deliveries[3].retry_after(60)
    await deliveries[2].requeue()
    await deliveries[1].ack()
    deliveries[4].release()
    deliveries[0].release()
    await subscriber.close()
    assert clock.timers == 0
    await connection.close()
    _, connection = await connected(broker)
    await connection.publisher().publish(outgoing(b"6"))
    again = all_taken(await subscribed(connection))
    assert [(delivery.payload, delivery.delivery_count) for delivery in again] == [
        (b"0", 1),
        (b"2", 2),
        (b"3", 2),
        (b"4", 1),
        (b"5", 1),
        (b"6", 1),
    ]


@pytest.mark.promise("MEMORY-1")
async def test_a_subscription_exists_while_nobody_has_it_open() -> None:
    """What is published between two starts of the same broker object is there at the second."""
    broker, connection = await connected()
    await (await subscribed(connection)).close()
    await connection.publisher().publish(outgoing(b"1"))
    await connection.close()
    _, connection = await connected(broker)
    await connection.publisher().publish(outgoing(b"2"))
    assert payloads(all_taken(await subscribed(connection))) == [b"1", b"2"]


@pytest.mark.promise("MEMORY-13")
@pytest.mark.parametrize("last", ["ack", "requeue"])
async def test_settlements_work_until_a_close_has_returned(last: str) -> None:
    """A close waits for what is in hand, and no longer; a settlement made meanwhile counts."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    for _ in range(2):
        await connection.publisher().publish(outgoing())

    first, second = all_taken(subscriber)
    with anyio.fail_after(0.9):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscriber.close)
            tasks.start_soon(subscriber.close)
            await anyio.wait_all_tasks_blocked()
            assert subscriber.take() is None
            await first.ack()
            await anyio.wait_all_tasks_blocked()
            await (second.ack() if last == "ack" else second.requeue())

    at_once(subscriber.close())
    assert broker.stored("orders") == (0 if last == "ack" else 1)


@pytest.mark.promise("MEMORY-13")
async def test_a_release_ends_the_wait_of_a_close() -> None:
    """Once the last delivery in hand is released, the close returns without spending its bound."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    delivery = taken(subscriber)
    with anyio.fail_after(0.9):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscriber.close)
            await anyio.wait_all_tasks_blocked()
            delivery.release()


@pytest.mark.promise("MEMORY-13")
async def test_a_close_with_something_in_hand_ends_within_its_bound() -> None:
    """A delivery that nobody settles holds up a close for its bound, and comes back afterwards."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(b"1"))
    held = taken(subscriber)
    with anyio.fail_after(5):
        await subscriber.close()

    assert payloads(all_taken(await subscribed(connection))) == [held.payload]


@pytest.mark.promise("MEMORY-13")
async def test_a_cancelled_close_has_given_everything_back() -> None:
    """A close that is cancelled leaves the subscriber closed and the messages to the next one."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(b"1"))
    taken(subscriber)
    with anyio.fail_after(0.9):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscriber.close)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    with pytest.raises(SubscriptionEnded):
        await subscriber.wait()

    assert payloads(all_taken(await subscribed(connection))) == [b"1"]


@pytest.mark.promise("MEMORY-13")
async def test_a_closed_stream_says_that_it_ended() -> None:
    """A wait that sleeps is ended by the close, later ones raise too, and nothing can be taken."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    ended = []

    async def consume() -> None:
        try:
            await subscriber.wait()
        except SubscriptionEnded as error:
            ended.append(str(error))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await anyio.wait_all_tasks_blocked()
            await subscriber.close()

    assert ended == ["subscription 'handler' was closed; nothing will come any more"]
    await connection.publisher().publish(outgoing())
    assert subscriber.take() is None
    with pytest.raises(SubscriptionEnded):
        await subscriber.wait()


@pytest.mark.promise("MEMORY-17")
async def test_a_stream_says_whether_a_take_may_succeed() -> None:
    """`ready` is true while something is unread or came back, and false again once it was taken."""
    clock = ManualClock()
    _, connection = await connected(clock=clock)
    subscriber = await subscribed(connection)
    assert not subscriber.ready

    await connection.publisher().publish(outgoing())
    assert subscriber.ready

    delivery = taken(subscriber)
    assert not subscriber.ready

    await delivery.requeue()
    assert subscriber.ready

    await taken(subscriber).retry_after(5)
    assert not subscriber.ready

    clock.advance(5)
    assert subscriber.ready
