"""Other threads: what they publish and settle is never lost, and wakes the owner."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

import anyio
import pytest
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed, SettlementError
from pystream.memory import MemoryBroker, MemoryDelivery, MemoryPublisher

from tests.core.memory.support import all_taken, at_once, connected, outgoing, payloads, subscribed, taken
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

_THREADS = 4
_EACH = 250


@contextmanager
def _threads(*targets: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()

    yield
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


async def _elsewhere(target: Callable[[], object]) -> None:
    await anyio.to_thread.run_sync(target)


def _publish_many(publisher: MemoryPublisher, thread: int) -> None:
    for number in range(_EACH):
        at_once(publisher.publish(outgoing(b"%d.%d" % (thread, number))))


def _settle_many(deliveries: SimpleQueue[MemoryDelivery | None]) -> None:
    while (delivery := deliveries.get()) is not None:
        number = int(delivery.payload.split(b".")[1])
        if delivery.delivery_count > 1 or number % 3 == 0:
            at_once(delivery.ack())
        elif number % 3 == 1:
            at_once(delivery.requeue())
        else:
            at_once(delivery.retry_after(0.001))


@pytest.mark.promise("MEMORY-10")
async def test_publishes_and_settlements_of_threads_lose_nothing() -> None:
    """Threads that publish and threads that settle leave every message acknowledged once, counts right."""
    broker = MemoryBroker()
    connection = await broker.connect(LoopClock())
    subscriber = await subscribed(connection)
    publisher = connection.publisher()
    hands: SimpleQueue[MemoryDelivery | None] = SimpleQueue()
    seen: Counter[tuple[bytes, int]] = Counter()
    expected = Counter(
        (b"%d.%d" % (thread, number), count)
        for thread in range(_THREADS)
        for number in range(_EACH)
        for count in ((1,) if number % 3 == 0 else (1, 2))
    )
    publishing = [lambda thread=thread: _publish_many(publisher, thread) for thread in range(_THREADS)]
    settling = [lambda: _settle_many(hands)] * 2
    with anyio.fail_after(30), _threads(*publishing, *settling):
        while seen.total() < expected.total():
            if (delivery := subscriber.take()) is None:
                await subscriber.wait()
            else:
                seen[delivery.payload, delivery.delivery_count] += 1
                hands.put(delivery)

        for _ in settling:
            hands.put(None)

    assert seen == expected
    await connection.close()
    assert broker.stored("orders") == 0


@pytest.mark.promise("MEMORY-10")
async def test_a_thread_wakes_a_sleeping_subscriber() -> None:
    """A publish and a requeue made in another thread end the owner's wait."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    publisher = connection.publisher()

    async def arrived() -> MemoryDelivery:
        while (delivery := subscriber.take()) is None:
            await subscriber.wait()

        return delivery

    # Timers, so that the loop sleeps already and nothing but the broker wakes it.
    with anyio.fail_after(5):
        threading.Timer(0.05, lambda: at_once(publisher.publish(outgoing(b"1")))).start()
        held = await arrived()
        threading.Timer(0.05, lambda: at_once(held.requeue())).start()
        again = await arrived()

    assert again.delivery_count == 2


@pytest.mark.promise("MEMORY-10")
async def test_order_between_threads_is_kept() -> None:
    """What a thread has published comes before what the owner publishes afterwards."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    publisher = connection.publisher()
    await _elsewhere(lambda: at_once(publisher.publish(outgoing(b"thread"))))
    await publisher.publish(outgoing(b"owner"))
    assert payloads(all_taken(subscriber)) == [b"thread", b"owner"]


@pytest.mark.promise("MEMORY-1", "MEMORY-10")
async def test_a_new_subscription_does_not_get_earlier_mail() -> None:
    """What a thread published before a subscription exists is not for it, even if nobody looked yet."""
    broker, connection = await connected()
    one = await subscribed(connection, name="one")
    publisher = connection.publisher()
    await _elsewhere(lambda: at_once(publisher.publish(outgoing(b"1"))))
    two = await subscribed(connection, name="two")
    assert (payloads(all_taken(one)), two.take()) == ([b"1"], None)
    await _elsewhere(lambda: at_once(publisher.publish(outgoing(b"2", to="nobody"))))
    assert broker.stored("nobody") == 0


@pytest.mark.promise("MEMORY-5", "MEMORY-10")
async def test_a_delay_asked_for_in_a_thread_is_kept_and_counted() -> None:
    """A delayed retry of another thread is held by the connection's clock and never early."""
    clock = ManualClock()
    _, connection = await connected(clock=clock)
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    delivery = taken(subscriber)
    await _elsewhere(lambda: at_once(delivery.retry_after(5)))
    assert subscriber.delayed == 1
    clock.advance(4.999)
    assert subscriber.take() is None
    clock.advance(0.001)
    assert taken(subscriber).delivery_count == 2


@pytest.mark.promise("MEMORY-8", "MEMORY-10")
async def test_of_two_threads_one_settles() -> None:
    """When two threads and the owner settle one delivery at a time, exactly one of them succeeds."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    publisher = connection.publisher()
    rounds = 200
    won: list[int] = []
    barrier = threading.Barrier(3)
    current: list[MemoryDelivery] = []

    def settle() -> None:
        barrier.wait(10)
        try:
            at_once(current[-1].ack())
            won.append(len(current))
        except SettlementError:
            pass
        finally:
            barrier.wait(10)

    def settle_all() -> None:
        for _ in range(rounds):
            settle()

    with _threads(settle_all, settle_all):
        for _ in range(rounds):
            await publisher.publish(outgoing())
            current.append(taken(subscriber))
            settle()

    assert won == list(range(1, rounds + 1))
    assert broker.stored("orders") == 0


@pytest.mark.promise("MEMORY-10", "MEMORY-13")
async def test_a_settlement_of_a_thread_ends_a_close() -> None:
    """A close waits for a delivery in a thread's hands, and the thread's acknowledgement counts."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    for _ in range(2):
        await connection.publisher().publish(outgoing())

    acked, released = all_taken(subscriber)
    with anyio.fail_after(0.9):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.close)
            await anyio.wait_all_tasks_blocked()
            await _elsewhere(released.release)
            await _elsewhere(lambda: at_once(acked.ack()))

    assert broker.stored("orders") == 1


@pytest.mark.promise("MEMORY-8", "MEMORY-11")
async def test_a_thread_is_told_of_a_close() -> None:
    """After the close a thread's publish and settlement raise BrokerClosed, and nothing is stored."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    publisher = connection.publisher()
    await publisher.publish(outgoing())
    delivery = taken(subscriber)
    with anyio.move_on_after(0):
        await connection.close()

    for late in (lambda: at_once(publisher.publish(outgoing())), lambda: at_once(delivery.requeue())):
        with pytest.raises(BrokerClosed):
            await _elsewhere(late)

    assert broker.stored("orders") == 1
