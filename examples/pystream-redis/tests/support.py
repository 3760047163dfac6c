"""Connections and bounded waits for the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
from pystream.clock import LoopClock
from pystream.protocols import Mounting, Outgoing
from server import Server

from pystream_redis import ConnectedRedisBroker, RedisBroker, RedisDelivery, RedisStream, RedisSubscriber

_numbers = count(1)


def new_stream(**options: Any) -> RedisStream:
    """A group of a stream that no other test uses; dead consumers are noticed soon."""
    defaults = {"claim_after": 1.0, "claim_every": 0.05}
    return RedisStream(f"stream-{next(_numbers)}", "group", **{**defaults, **options})


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[ConnectedRedisBroker]:
    """A connection, closed at the end."""
    connection = await RedisBroker(server.url).connect(LoopClock())
    try:
        yield connection
    finally:
        await connection.close()


async def opened(connection: ConnectedRedisBroker, source: RedisStream, name: str = "reader") -> RedisSubscriber:
    return await connection.subscribe(source, Mounting(name=name))


async def publish(connection: ConnectedRedisBroker, source: RedisStream, *payloads: bytes) -> None:
    publisher = connection.publisher()
    for payload in payloads:
        await publisher.publish(Outgoing(source.stream, payload, {}))


async def arrival(subscriber: RedisSubscriber) -> RedisDelivery:
    """The next delivery, within 10 seconds."""
    with anyio.fail_after(10):
        while (delivery := subscriber.take()) is None:
            await subscriber.wait()

    return delivery


async def until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds, within 10 seconds."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110  # what the server keeps raises no event here
            await anyio.sleep(0.01)
