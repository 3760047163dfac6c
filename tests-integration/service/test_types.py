"""The other subscription types, which the embedded server does not have: order, refusals, retries in place."""

from __future__ import annotations

from collections import Counter, defaultdict

import anyio
import pytest
from live.choice import LiveServer
from live.orders import Log, Order, Unique, publish_in_order, publish_orders
from pystream import Context, Outcome, PyStream, State, mount, retry, retry_after
from pystream.errors import ServiceFailed
from pystream_pulsar import MessageKey, PulsarBroker, PulsarPublishPolicy, PulsarSubscription, SubscriptionType

pytestmark = [pytest.mark.anyio, pytest.mark.gate]

IN_ORDER = [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER]


@pytest.mark.promise("PULSAR-130")
@pytest.mark.parametrize("kind", list(SubscriptionType), ids=lambda kind: kind.name)
async def test_acknowledged_messages_do_not_return(
    real_server: LiveServer, unique: Unique, kind: SubscriptionType
) -> None:
    """On every type each message is handled once, and not again after a restart."""
    topic, log = unique("ack"), Log()

    async def read(order: Order, log: State[Log]) -> None:
        log.add(order.id)

    source = PulsarSubscription(topic, "reader", type=kind)
    app = PyStream("reader", state=log).with_broker(PulsarBroker(real_server.url), mount(read, source))
    async with app.start() as running:
        await publish_in_order(running.publisher(), topic, range(200))
        await log.distinct(200)

    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(200, 201))
        await log.distinct(201)

    assert sorted(log.seen) == list(range(201))
    if kind in IN_ORDER:
        assert log.seen == list(range(201))


@pytest.mark.promise("PULSAR-131")
@pytest.mark.parametrize("kind", IN_ORDER, ids=lambda kind: kind.name)
async def test_retries_in_place_keep_the_order(real_server: LiveServer, unique: Unique, kind: SubscriptionType) -> None:
    """On EXCLUSIVE and FAILOVER a retried message runs again before the next one, its attempt raised each time."""
    topic, log = unique("in-place"), Log()

    async def read(order: Order, context: Context, log: State[Log]) -> Outcome | None:
        log.add(10 * order.id + context.attempt)
        if order.id == 2 and context.attempt < 4:
            return retry() if context.attempt == 1 else retry_after(0.05)

        return None

    source = PulsarSubscription(topic, "reader", type=kind)
    app = PyStream("reader", state=log).with_broker(PulsarBroker(real_server.url), mount(read, source))
    async with app.start() as running:
        await publish_in_order(running.publisher(), topic, range(5))
        await log.distinct(8)

    assert log.seen == [1, 11, 21, 22, 23, 24, 31, 41]


@pytest.mark.promise("PULSAR-132")
async def test_a_retry_on_key_shared(real_server: LiveServer, unique: Unique) -> None:
    """On KEY_SHARED a retried message is delivered again by the server, its attempt raised each time."""
    topic, log = unique("key-shared-retry"), Log()

    async def read(order: Order, context: Context, log: State[Log]) -> Outcome | None:
        log.add(context.attempt)
        return retry() if context.attempt < 3 else None

    source = PulsarSubscription(topic, "reader", type=SubscriptionType.KEY_SHARED)
    app = PyStream("reader", state=log).with_broker(PulsarBroker(real_server.url), mount(read, source))
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(1), key="k")
        await log.distinct(3)

    assert log.seen == [1, 2, 3]


@pytest.mark.promise("PULSAR-133")
async def test_each_key_has_one_reader(real_server: LiveServer, unique: Unique) -> None:
    """Two services on one KEY_SHARED subscription share the keys: each key in order, and with one of them only."""
    topic, log = unique("keys"), Log()
    by_reader: dict[str, dict[str, list[int]]] = {name: defaultdict(list) for name in ("one", "two")}

    async def read(order: Order, key: MessageKey, mine: State[dict[str, list[int]]]) -> None:
        assert key is not None
        mine[key].append(order.id)
        log.add(order.id)

    source = PulsarSubscription(topic, "reader", type=SubscriptionType.KEY_SHARED)
    one, two = (
        PyStream(name, state=mine).with_broker(PulsarBroker(real_server.url), mount(read, source))
        for name, mine in by_reader.items()
    )
    async with one.start() as running, two.start(), anyio.create_task_group() as sends:
        for key in range(20):
            numbers = range(100 * key, 100 * key + 30)
            sends.start_soon(publish_in_order, running.publisher(), topic, numbers, f"key-{key}")

        await log.distinct(600)

    assert len(log.seen) == 600
    assert all(by_reader.values())
    assert not by_reader["one"].keys() & by_reader["two"].keys()
    for mine in by_reader.values():
        assert all(numbers == sorted(numbers) for numbers in mine.values())


@pytest.mark.promise("PULSAR-134")
async def test_a_second_exclusive_reader_is_refused(real_server: LiveServer, unique: Unique) -> None:
    """A second EXCLUSIVE service fails to start, as does one of another type; both are told why, the first goes on."""
    topic, log = unique("exclusive"), Log()

    async def read(order: Order, log: State[Log]) -> None:
        log.add(order.id)

    def service(kind: SubscriptionType) -> PyStream:
        source = PulsarSubscription(topic, "reader", type=kind)
        return PyStream(kind.name, state=log).with_broker(PulsarBroker(real_server.url), mount(read, source))

    async with service(SubscriptionType.EXCLUSIVE).start() as running:
        for kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED):
            with anyio.fail_after(20), pytest.raises(ServiceFailed, match=r"ConsumerBusy") as failed:
                async with service(kind).start():
                    pytest.fail("the second service started")

            assert f"our consumer of type {kind.name}" in str(failed.value)
            assert topic in str(failed.value)

        await publish_orders(running.publisher(), topic, range(1))
        await log.distinct(1)


@pytest.mark.promise("PULSAR-135")
async def test_a_failover_reader_takes_over(real_server: LiveServer, unique: Unique) -> None:
    """Of two FAILOVER services one is active; when both stop in turn the other handles the rest, and none is lost."""
    topic, log = unique("failover"), Log()

    async def read(order: Order, log: State[Log]) -> None:
        log.add(order.id)

    source = PulsarSubscription(topic, "reader", type=SubscriptionType.FAILOVER)
    first, second = (
        PyStream(name, state=log).with_broker(PulsarBroker(real_server.url), mount(read, source))
        for name in ("first", "second")
    )
    async with PyStream("sender").with_broker(PulsarBroker(real_server.url)).start() as sender:
        publisher = sender.publisher()
        async with second.start():
            async with first.start():
                await publish_orders(publisher, topic, range(100))
                await log.distinct(100)

            await publish_orders(publisher, topic, range(100, 200))
            await log.distinct(200)

    assert sorted(set(log.seen)) == list(range(200))
    assert {Counter(log.seen)[number] for number in range(100, 200)} == {1}


@pytest.mark.promise("PULSAR-136")
@pytest.mark.parametrize("workers", [None, 8], ids=["sequential", "workers"])
@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED], ids=lambda kind: kind.name)
async def test_neighbours_of_a_retried_message_are_not_handled_again(
    real_server: LiveServer, unique: Unique, workers: int | None, kind: SubscriptionType
) -> None:
    """Of 2,000 messages in batches every 50th is retried once: it is handled twice, every other one once."""
    topic, log, count = unique("neighbours"), Log(), 2_000

    async def read(order: Order, context: Context, log: State[Log]) -> Outcome | None:
        log.add(order.id)
        return retry() if order.id % 50 == 0 and log.seen.count(order.id) == 1 else None

    source = PulsarSubscription(topic, "reader", type=kind)
    broker = PulsarBroker(real_server.url)
    app = PyStream("reader", state=log).with_broker(broker, mount(read, source, workers=workers))
    async with app.start():
        pass  # the subscription exists from now on

    async with PyStream("sender").with_broker(broker).start() as sender:
        await publish_orders(sender.publisher(policy=PulsarPublishPolicy()), topic, range(count), key="k")
        if real_server.admin is not None:
            assert real_server.admin.subscription(topic, "reader").backlog < count / 2, "no batches were sent"

        async with app.start():
            await log.until(lambda: len(log.seen) >= count + count // 50, 40)

        async with app.start():
            await publish_orders(sender.publisher(), topic, [count], key="k")
            await log.until(lambda: log.seen[-1] == count)

    # Anything that was left would have come before the last one.
    times = Counter(log.seen)
    assert {number: times[number] for number in range(count + 1)} == {
        number: 2 if number % 50 == 0 and number < count else 1 for number in range(count + 1)
    }
