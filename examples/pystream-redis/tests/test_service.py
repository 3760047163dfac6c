"""A service over Redis, as its author would write it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pystream import Context, Outcome, PyStream, by_key, mount, retry, retry_after, subscriber
from pystream.errors import RegistrationError, ServiceFailed
from pystream.memory import MemorySubscription
from server import Server
from support import new_stream

from pystream_redis import EntryId, RedisBroker, RedisStream

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    id: int


class Confirmed(BaseModel):
    order: int


@pytest.mark.promise("SDK-158")
async def test_service_replies_retries_and_drains(redis_server: Server, client: Any) -> None:
    """Handlers get typed orders, retry by the server's count, reply on a second stream; nothing stays pending."""
    orders, confirmed = new_stream(start="oldest"), new_stream(start="oldest")
    attempts: list[tuple[int, int, bool]] = []
    done: list[int] = []
    finished = anyio.Event()

    @subscriber(orders, reply_to=confirmed.stream)
    async def confirm(order: Order, ctx: Context, entry: EntryId) -> Confirmed | Outcome:
        attempts.append((order.id, ctx.attempt, entry.count("-") == 1))
        if order.id % 2 and ctx.attempt == 1:
            return retry()

        if order.id % 3 == 0 and ctx.attempt <= 2:
            return retry_after(0.05)

        return Confirmed(order=order.id)

    @subscriber(confirmed)
    async def receive(reply: Confirmed) -> None:
        done.append(reply.order)
        if len(done) == 12:
            finished.set()

    app = PyStream("shop", plugins=[]).with_broker(
        RedisBroker(redis_server.url), mount(confirm, workers=by_key(4)), receive
    )
    async with app.start() as running:
        for number in range(12):
            await running.publisher().publish(Order(id=number), orders.stream, key=f"{number % 3}")

        with anyio.fail_after(20):
            await finished.wait()

    assert sorted(done) == list(range(12))
    assert (1, 2, True) in attempts
    assert (3, 3, True) in attempts
    assert (6, 3, True) in attempts or (6, 2, True) in attempts
    for source in (orders, confirmed):
        assert client.xpending(source.stream, source.group)["pending"] == 0


@pytest.mark.promise("SDK-158")
async def test_removed_stream_stops_the_service(redis_server: Server, client: Any) -> None:
    """A service whose stream is removed stops, and its failure names the subscription and the reason."""
    source = new_stream()

    @subscriber(source)
    async def confirm(order: Order) -> None: ...

    app = PyStream("shop", plugins=[]).with_broker(RedisBroker(redis_server.url), confirm)

    async def lose_the_stream() -> None:
        async with app.start() as running:
            client.delete(source.stream)
            await running.stopping()

    with (
        anyio.fail_after(10),
        pytest.raises(ServiceFailed, match=rf"^{source.stream} failed .* the stream or its group was removed"),
    ):
        await lose_the_stream()


@pytest.mark.promise("SDK-147")
def test_source_is_known_before_the_start() -> None:
    """A handler on a foreign source, or one that asks for what the source has not, is refused when it is mounted."""

    async def handler(order: Order, entry: EntryId) -> None: ...

    with pytest.raises(RegistrationError):
        PyStream("shop").with_broker(RedisBroker("redis://h"), mount(handler, MemorySubscription("s")))

    PyStream("shop").with_broker(RedisBroker("redis://h"), mount(handler, RedisStream("s", "g")))
