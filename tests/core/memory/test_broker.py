"""The broker object: configuration, one loop at a time, state that outlives connections."""

from __future__ import annotations

import threading
from importlib.metadata import entry_points
from typing import Any

import anyio
import pytest
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed, ConfigurationError, ConnectError, SubscribeError, SubscriptionEnded
from pystream.memory import MemoryBroker, MemorySubscription, broker_from_url
from pystream.protocols import Broker, ConnectedBroker, Mounting

from tests.core.memory.support import all_taken, at_once, connected, outgoing, payloads, subscribed, taken
from tests.manual_clock import ManualClock


@pytest.mark.promise("MEMORY-18")
def test_construction_needs_no_loop() -> None:
    """A broker is made, described and asked for a source where no event loop runs."""
    broker: Broker = MemoryBroker("eu")
    assert broker.describe() == "memory://eu"
    assert broker.default_source("orders") == MemorySubscription("orders")
    assert repr(broker) == "MemoryBroker('eu')"
    with pytest.raises(ConfigurationError):
        broker.default_source("")


@pytest.mark.promise("MEMORY-18")
@pytest.mark.parametrize(("url", "address"), [("memory://", "memory://"), ("memory://orders-2", "memory://orders-2")])
def test_the_entry_point_makes_a_broker_of_a_url(url: str, address: str) -> None:
    """The scheme `memory` is registered, and each URL makes a broker of its own."""
    (found,) = entry_points(group="pystream.brokers", name="memory")
    factory = found.load()
    assert factory is broker_from_url
    assert factory(url).describe() == address
    assert factory(url) is not factory(url)


@pytest.mark.promise("MEMORY-12", "MEMORY-18")
@pytest.mark.parametrize(
    "url", ["", "memory:", "redis://", "memory://user:secret@host", "memory://a/b", "memory://a?b=secret"]
)
def test_a_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    """Anything but `memory://` and a name is refused, and the message shows nothing of it."""
    with pytest.raises(ConfigurationError, match="give memory:// or memory://NAME") as caught:
        broker_from_url(url)

    assert "secret" not in str(caught.value)


@pytest.mark.promise("MEMORY-12")
@pytest.mark.parametrize("name", ["a b", "a/b", "\n", "a@b", None, 3])
def test_a_broker_name_that_is_none_is_refused(name: Any) -> None:
    """The name in the address has letters, digits and three signs, nothing else."""
    with pytest.raises(ConfigurationError, match="cannot be its name"):
        MemoryBroker(name)


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-9")
async def test_connecting_waits_for_nothing() -> None:
    """Connecting and subscribing are made before they could be cancelled."""
    connection: ConnectedBroker = at_once(MemoryBroker().connect(ManualClock()))
    at_once(connection.subscribe(MemorySubscription("orders"), Mounting(name="handler")))
    await connection.close()


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-12")
async def test_a_source_of_another_broker_is_refused() -> None:
    """Subscribing with a source of another kind names the subscription and both sides."""
    _, connection = await connected()
    with pytest.raises(SubscribeError, match=r"'confirm'.*memory://test takes a MemorySubscription.*is a str"):
        await connection.subscribe("orders", Mounting(name="confirm"))


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-12")
async def test_a_subscription_that_is_open_is_not_opened_twice() -> None:
    """The same mounting name on one destination is refused until the first is closed."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    with pytest.raises(SubscribeError, match="'handler' of 'orders' is open already on memory://test"):
        await subscribed(connection)

    await subscriber.close()
    await subscribed(connection)


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-11")
async def test_a_closed_connection_ends_its_handles() -> None:
    """After a close its streams have ended, subscribing raises, and a second close does nothing."""
    broker, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(b"1"))
    await connection.close()
    await connection.close()
    with pytest.raises(SubscriptionEnded):
        await subscriber.wait()

    with pytest.raises(BrokerClosed, match="memory://test was closed"):
        await subscribed(connection)

    _, connection = await connected(broker)
    assert payloads(all_taken(await subscribed(connection))) == [b"1"]


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-13")
async def test_a_close_ends_all_streams_within_one_bound() -> None:
    """Streams that were left open with deliveries in hand are closed together, not one after the other."""
    broker, connection = await connected()
    for number in range(8):
        subscriber = await subscribed(connection, name=f"handler-{number}")
        await connection.publisher().publish(outgoing())
        taken(subscriber)

    with anyio.fail_after(5):
        await connection.close()

    assert broker.stored("orders") == 8


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-13")
async def test_a_closed_stream_is_forgotten() -> None:
    """Opening and closing a subscription again and again leaves one listener, and nothing of the old ones."""
    broker, connection = await connected()
    for _ in range(3):
        subscriber = await subscribed(connection)
        await subscriber.close()

    await subscribed(connection)
    assert len(broker._store.topics["orders"].listening) == 1


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-14")
async def test_connections_of_one_loop_share_the_broker() -> None:
    """Two connections of one broker object see the same names; closing one leaves the other alone."""
    broker, one = await connected()
    _, two = await connected(broker)
    subscriber = await subscribed(two)
    await one.publisher().publish(outgoing(b"1"))
    await one.close()
    await two.publisher().publish(outgoing(b"2"))
    assert payloads(all_taken(subscriber)) == [b"1", b"2"]


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-14")
async def test_a_broker_serves_one_thread_at_a_time() -> None:
    """A connect in another thread is refused, naming the thread, until the connection is closed."""
    broker, connection = await connected()
    refused = []

    def elsewhere() -> None:
        try:
            anyio.run(broker.connect, ManualClock())
        except ConnectError as error:
            refused.append(str(error))

    await anyio.to_thread.run_sync(elsewhere)
    assert f"memory://test is connected in thread {threading.current_thread().name!r}" in refused[0]
    await connection.close()
    await anyio.to_thread.run_sync(elsewhere)
    assert len(refused) == 1


@pytest.mark.anyio
@pytest.mark.promise("MEMORY-14")
async def test_the_thread_of_the_connection_owns_the_broker() -> None:
    """Where the object was made does not matter: the connection's thread works without mail."""
    broker, connection = await connected(await anyio.to_thread.run_sync(MemoryBroker))
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing())
    assert not broker._store.mail
    await taken(subscriber).ack()
    assert not broker._store.mail


@pytest.mark.promise("MEMORY-6", "MEMORY-14")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("thread", [False, True])
def test_a_loop_that_ended_without_a_close_gives_everything_back(backend: str, thread: bool) -> None:
    """The next connect takes over from a loop that is gone: what was in hand or held comes back once."""
    broker = MemoryBroker()
    left: list[Any] = []

    async def crash() -> None:
        connection = await broker.connect(LoopClock())
        subscriber = await subscribed(connection)
        for body in (b"1", b"2", b"3", b"4", b"5"):
            await connection.publisher().publish(outgoing(body))

        left.extend([taken(subscriber), connection.publisher()])
        await taken(subscriber).retry_after(60)
        mailed = [taken(subscriber), taken(subscriber)]
        async with anyio.create_task_group() as tasks:
            all_taken(subscriber)[0].release()
            tasks.start_soon(subscriber.wait)
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(lambda: at_once(mailed[0].requeue()))
            await anyio.to_thread.run_sync(lambda: at_once(mailed[1].retry_after(30)))
            tasks.cancel_scope.cancel()

    async def restart() -> None:
        _, connection = await connected(broker)
        again = all_taken(await subscribed(connection))
        assert [(delivery.payload, delivery.delivery_count) for delivery in again] == [
            (b"1", 1),
            (b"2", 2),
            (b"3", 2),
            (b"4", 2),
            (b"5", 1),
        ]
        for late in (left[0].ack, lambda: left[1].publish(outgoing())):
            with pytest.raises(BrokerClosed):
                await late()

    if thread:
        worker = threading.Thread(target=anyio.run, args=(crash,), kwargs={"backend": backend})
        worker.start()
        worker.join(10)
    else:
        anyio.run(crash, backend=backend)

    anyio.run(restart, backend=backend)
