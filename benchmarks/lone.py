"""`consume.lone`: publish, handled, publish: what a message costs that finds the service idle.

Its floor is the same between two tasks with bare futures of the loop, validation and
handler included: one wake-up there, one back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from pystream import PyStream, mount
from pystream.memory import MemoryBroker, MemorySubscription

from benchmarks.payload import PAYLOAD, Order, typed, validate


async def lone_floor(count: int) -> float:
    """Two tasks, two futures per message."""
    loop = asyncio.get_running_loop()
    box: deque[bytes] = deque()
    arrived = loop.create_future()
    handled = loop.create_future()

    async def consume() -> None:
        nonlocal arrived
        for _ in range(count):
            await arrived
            arrived = loop.create_future()
            await typed(validate(box.popleft()))
            handled.set_result(None)

    consumer = asyncio.create_task(consume())
    await asyncio.sleep(0)
    started = time.perf_counter()
    for _ in range(count):
        handled = loop.create_future()
        box.append(PAYLOAD)
        arrived.set_result(None)
        await handled

    taken = time.perf_counter() - started
    await consumer
    return taken


async def lone(count: int) -> float:
    """Through a service on the memory broker; the publisher sleeps until the handler has run."""
    loop = asyncio.get_running_loop()
    handled = loop.create_future()

    async def handler(order: Order) -> None:
        handled.set_result(None)

    app = PyStream("bench", plugins=[])
    app.with_broker(MemoryBroker(), mount(handler, MemorySubscription("orders"), name="bench"))
    async with app.start() as running:
        publish = running.publisher().publish
        started = time.perf_counter()
        for _ in range(count):
            handled = loop.create_future()
            await publish(PAYLOAD, "orders")
            await handled

        return time.perf_counter() - started
