"""Batches over a Pulsar server: case C04, and what each delivery of a batch gets."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from live.choice import LiveServer
from live.orders import Order, Unique, publish_orders
from pystream import Backoff, BatchContext, FailurePolicy, Outcome, PyStream, ack, dead_letter, mount, retry
from pystream_pulsar import PulsarBroker, PulsarSubscription, SubscriptionType

pytestmark = [pytest.mark.anyio, pytest.mark.gate]

QUIET = 3.0
"""Seconds without anything more, after which nothing more is expected."""

QUICK = FailurePolicy(error=Backoff(0.2, jitter=0.0))


class Seen:
    """What the handlers got, and what became a dead letter."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.dead: list[int] = []
        self.changed = anyio.Event()

    def add(self, batch: list[Order]) -> None:
        self.batches.append([order.id for order in batch])
        self._change()

    def bury(self, order: Order) -> None:
        self.dead.append(order.id)
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def until_dead(self, count: int) -> None:
        """Return once there are so many dead letters."""
        with anyio.fail_after(30):
            while len(self.dead) < count:
                await self.changed.wait()


def service(url: str, topic: str, seen: Seen, decide: Any, **settings: Any) -> PyStream:
    """One handler of batches of eight, and one of its dead letters."""

    async def handle(orders: list[Order]) -> list[Outcome]:
        seen.add(orders)
        outcomes: list[Outcome] = decide(orders)
        return outcomes

    async def bury(order: Order) -> None:
        seen.bury(order)

    return PyStream("batches").with_broker(
        PulsarBroker(url),
        mount(handle, PulsarSubscription(topic, "batches"), batch=8, dead_letter=f"{topic}-dead", **settings),
        mount(bury, PulsarSubscription(f"{topic}-dead", "reader")),
    )


def _bad(orders: list[Order]) -> list[Outcome]:
    return [dead_letter("bad")]


def _raises(orders: list[Order]) -> list[Outcome]:
    raise ValueError("bad")


@pytest.mark.promise("BATCH-32")
@pytest.mark.parametrize(("decide", "calls"), [(_bad, 1), (_raises, 2)])
async def test_a_bad_message_alone(pulsar_server: LiveServer, unique: Unique, decide: Any, calls: int) -> None:
    """A single bad message in a batch becomes one dead letter, and is not seen again afterwards."""
    topic, seen = unique("alone"), Seen()
    app = service(pulsar_server.url, topic, seen, decide, max_attempts=2, on_failure=QUICK)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(1))
        await seen.until_dead(1)
        await anyio.sleep(QUIET)

    assert seen.dead == [0]
    assert seen.batches == [[0]] * calls
    async with app.start():
        await anyio.sleep(QUIET)

    assert (seen.dead, len(seen.batches)) == ([0], calls), "it was acknowledged"


@pytest.mark.promise("BATCH-32")
async def test_only_the_last_one_is_bad(pulsar_server: LiveServer, unique: Unique) -> None:
    """Of several messages the bad one alone becomes a dead letter; none of the others comes again."""
    topic, seen = unique("last"), Seen()

    def decide(orders: list[Order]) -> list[Outcome]:
        return [dead_letter("bad") if order.id == 4 else ack() for order in orders]

    app = service(pulsar_server.url, topic, seen, decide, batch_wait=1)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(5))
        await seen.until_dead(1)
        await anyio.sleep(QUIET)

    assert seen.dead == [4]
    assert sorted(number for batch in seen.batches for number in batch) == list(range(5))


@pytest.mark.promise("BATCH-21")
@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE])
async def test_one_of_a_batch_is_retried(pulsar_server: LiveServer, unique: Unique, kind: SubscriptionType) -> None:
    """A retried delivery comes again without the others of its batch, its attempt raised by one."""
    topic, over = unique("retried"), anyio.Event()
    attempts: dict[int, list[int]] = {}

    async def handle(orders: list[Order], batch: BatchContext) -> list[Outcome]:
        for order, context in zip(orders, batch.contexts, strict=True):
            attempts.setdefault(order.id, []).append(context.attempt)

        if len(attempts) == 4 and len(attempts.get(1, ())) == 2:
            over.set()

        return [retry() if order.id == 1 and len(attempts[1]) == 1 else ack() for order in orders]

    app = PyStream("batches").with_broker(
        PulsarBroker(pulsar_server.url),
        mount(handle, PulsarSubscription(topic, "batches", type=kind), batch=4, batch_wait=0.5),
    )
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(4))
        with anyio.fail_after(30):
            await over.wait()

        await anyio.sleep(QUIET / 3)

    assert attempts == {0: [1], 1: [1, 2], 2: [1], 3: [1]}
