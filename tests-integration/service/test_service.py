"""A whole service over a Pulsar server: what it handles, settles, gives back and publishes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Annotated

import anyio
import anyio.lowlevel
import pytest
from live.choice import LiveServer
from live.orders import Log, Order, Unique, publish_in_order, publish_orders
from pystream import Context, Header, Outcome, PyStream, State, by_key, drop, mount, retry, retry_after, subscriber
from pystream.clock import LoopClock
from pystream_pulsar import (
    MessageKey,
    MessageTopic,
    PulsarBroker,
    PulsarMessage,
    PulsarPosition,
    PulsarPublishPolicy,
    PulsarSubscription,
)

pytestmark = [pytest.mark.anyio, pytest.mark.gate]


@pytest.mark.promise("PULSAR-101")
async def test_round_trip(pulsar_server: LiveServer, unique: Unique) -> None:
    """Payload, headers, key, properties and position of a message arrive as they were published."""
    topic, arrived = unique("round-trip"), anyio.Event()
    seen: list[object] = []

    @subscriber(PulsarSubscription(topic, "reader"))
    async def read(
        order: Order,
        context: Context,
        request: Annotated[str, Header("X-Request-Id")],
        key: MessageKey,
        name: MessageTopic,
        message: PulsarMessage,
        position: PulsarPosition,
    ) -> None:
        seen.extend([order, dict(context.headers), request, key, name, dict(message.properties), context.attempt])
        assert PulsarPosition.from_bytes(position.to_bytes()) == position
        arrived.set()

    app = PyStream("reader").with_broker(PulsarBroker(pulsar_server.url), read)
    async with app.start() as running:
        await running.publisher().publish(
            Order(id=7), topic, key="customer-1", headers={"x-request-id": "r-1", "Trace": b"t-1"}
        )
        with anyio.fail_after(20):
            await arrived.wait()

    full = f"persistent://public/default/{topic}"
    headers = {"x-request-id": b"r-1", "Trace": b"t-1"}
    properties = {"x-request-id": "r-1", "Trace": "t-1"}
    assert seen == [Order(id=7), headers, "r-1", "customer-1", full, properties, 1]


@pytest.mark.promise("PULSAR-102")
async def test_acknowledged_messages_do_not_return(pulsar_server: LiveServer, unique: Unique) -> None:
    """What was acknowledged or dropped is not delivered again, not even right after a restart."""
    topic, log = unique("ack"), Log()

    @subscriber(PulsarSubscription(topic, "reader"))
    async def read(order: Order) -> Outcome | None:
        log.add(order.id)
        return drop() if order.id % 2 else None

    app = PyStream("reader").with_broker(PulsarBroker(pulsar_server.url), read)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(20))
        await log.distinct(20)

    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(20, 21))
        await log.distinct(21)

    assert sorted(log.seen) == list(range(21))


@pytest.mark.promise("PULSAR-103")
async def test_retried_messages_return_with_their_count(pulsar_server: LiveServer, unique: Unique) -> None:
    """A retried message is delivered again, its attempt raised by one each time."""
    topic, log = unique("retry"), Log()

    @subscriber(PulsarSubscription(topic, "reader"))
    async def read(order: Order, context: Context) -> Outcome | None:
        log.add(context.attempt)
        return retry() if context.attempt < 4 else None

    app = PyStream("reader").with_broker(PulsarBroker(pulsar_server.url), read)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(1))
        await log.distinct(4)

    assert log.seen == [1, 2, 3, 4]


@pytest.mark.promise("PULSAR-104")
async def test_delayed_retries_are_not_early(pulsar_server: LiveServer, unique: Unique) -> None:
    """`retry_after(d)` redelivers, and never before d seconds have passed."""
    topic, log, times = unique("delay"), Log(), []
    delay = 0.7

    @subscriber(PulsarSubscription(topic, "reader"))
    async def read(order: Order, context: Context) -> Outcome | None:
        times.append(clock.now())
        log.add(context.attempt)
        return retry_after(delay) if context.attempt == 1 else None

    clock = LoopClock()
    app = PyStream("reader").with_broker(PulsarBroker(pulsar_server.url), read)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(1))
        await log.distinct(2)

    assert times[1] - times[0] >= delay


@pytest.mark.promise("PULSAR-105")
async def test_unsettled_messages_return(pulsar_server: LiveServer, unique: Unique) -> None:
    """A delivery that a stop left unsettled is delivered again to the next start."""
    topic, log = unique("unsettled"), Log()

    @subscriber(PulsarSubscription(topic, "reader"))
    async def hold(order: Order) -> None:
        log.add(order.id)
        await anyio.sleep_forever()

    @subscriber(PulsarSubscription(topic, "reader"))
    async def read(order: Order) -> None:
        log.add(order.id)

    broker = PulsarBroker(pulsar_server.url)
    async with PyStream("holder", shutdown_timeout=0).with_broker(broker, hold).start() as running:
        await publish_in_order(running.publisher(), topic, range(3))
        await log.until(lambda: log.seen == [0])

    async with PyStream("reader").with_broker(broker, read).start():
        await log.distinct(3)

    assert Counter(log.seen)[0] >= 2


@pytest.mark.promise("PULSAR-106")
@pytest.mark.parametrize("workers", [None, 8, by_key(8)], ids=["sequential", "workers", "by_key"])
async def test_a_stop_at_any_moment_loses_nothing(
    pulsar_server: LiveServer, unique: Unique, workers: int | None
) -> None:
    """5,000 messages, a stop at a random moment, a second start: every one is handled, none is left.

    One entry per message: the embedded server forgets the rest of a producer batch of which
    a part was acknowledged when its consumer left, whatever the client.
    """
    topic, log, count = unique("drain"), Log(), 5_000
    source = PulsarSubscription(topic, "reader")

    async def read(order: Order, log: State[Log]) -> None:
        if order.id % 7 == 0:
            await anyio.lowlevel.checkpoint()

        log.add(order.id)

    broker = PulsarBroker(pulsar_server.url)
    app = PyStream("reader", state=log).with_broker(broker, mount(read, source, workers=workers))
    producer = PyStream("producer").with_broker(broker)
    async with app.start():
        pass  # the subscription exists from now on

    moment = random.randint(1, count)
    async with producer.start() as sending, anyio.create_task_group() as tasks:
        publisher = sending.publisher(policy=PulsarPublishPolicy(batching=False))
        async with app.start():
            tasks.start_soon(publish_orders, publisher, topic, range(count))
            await log.distinct(moment)

        async with app.start():
            await log.distinct(count)

    handled = len(log.seen)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(count, count + 1))
        await log.distinct(count + 1)

    # Anything left would have come before the last one.
    assert log.seen[handled:] == [count], f"stopped after {moment} of {count}"
