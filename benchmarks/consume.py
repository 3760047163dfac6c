"""The rows of the consume path, and their floors.

The floor takes from a deque, validates the JSON, awaits the handler and counts. Rows run
through a whole started service, acknowledgement awaited.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
from pystream import PyStream, by_key, mount
from pystream.memory import MemoryBroker, MemorySubscription
from pystream.protocols import Publisher

from benchmarks.payload import PAYLOAD, Order, batched, passing, raw, typed, validate, with_context, with_header
from benchmarks.stand_ins import HeldBroker, ReadyDelivery, ReadySource, from_deque, ready

Subject: TypeAlias = "Callable[[int], Awaitable[float]]"
"""Handles that many deliveries; answers the seconds it took, without the preparations."""


async def floor(count: int) -> float:
    """Without a framework."""
    return await through_floor(ready(count))


async def raw_floor(count: int) -> float:
    """Without a framework, for the handler of bytes."""
    deliveries, handled = ready(count), 0
    started = time.perf_counter()
    while deliveries:
        await raw(deliveries.popleft().payload)
        handled += 1

    return time.perf_counter() - started


async def through_floor(deliveries: deque[ReadyDelivery]) -> float:
    """Handle what is ready, without a framework."""
    handled = 0
    started = time.perf_counter()
    while deliveries:
        await typed(validate(deliveries.popleft().payload))
        handled += 1

    return time.perf_counter() - started


def service(handler: Callable[..., Awaitable[None]], **settings: Any) -> Subject:
    """Through the runtime, from deliveries that are ready."""

    async def subject(count: int) -> float:
        return await through_service(ready(count), handler, **settings)

    return subject


async def through_service(
    deliveries: deque[ReadyDelivery],
    handler: Callable[..., Awaitable[Any]] = typed,
    *,
    publisher: Publisher | None = None,
    **settings: Any,
) -> float:
    """From the moment that a started service gets its deliveries until it has handled the last one."""
    waiting, begin = deque[ReadyDelivery](), anyio.Event()
    broker: Any = HeldBroker(from_deque(waiting), begin, publisher)
    app = PyStream("bench", plugins=[], on_subscription_end="log")
    app.with_broker(broker, mount(handler, ReadySource(), **settings))
    async with app.start() as running:
        waiting.extend(deliveries)
        begin.set()
        started = time.perf_counter()
        while running.health.active:
            await running.health.changed()

        return time.perf_counter() - started


async def from_memory(count: int) -> float:
    """Through the runtime, from the log of the memory broker, which holds the messages at the start."""
    broker, handled, done = MemoryBroker(), 0, anyio.Event()

    async def handler(order: Order) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            done.set()

    mounted = mount(handler, MemorySubscription("orders"), name="bench")
    async with PyStream("open", plugins=[]).with_broker(broker, mounted).start():
        pass  # a subscription has to be known before anything is kept for it

    async with PyStream("fill", plugins=[]).with_broker(broker).start() as running:
        publisher = running.publisher()
        for _ in range(count):
            await publisher.publish(PAYLOAD, "orders")

    app = PyStream("bench", plugins=[]).with_broker(broker, mounted)
    started = 0.0

    @app.on_startup
    def begin() -> None:
        nonlocal started
        started = time.perf_counter()

    async with app.start():
        await done.wait()
        return time.perf_counter() - started


ROWS: dict[str, tuple[Subject, Subject, float | None]] = {
    "consume.default": (floor, service(typed), 2.5),
    "consume.context": (floor, service(with_context), 3.0),
    "consume.header": (floor, service(with_header), 3.0),
    "consume.layers4": (floor, service(typed, layers=[passing] * 4), 4.0),
    "consume.bytes": (raw_floor, service(raw), 8.0),
    "consume.workers16": (floor, service(typed, workers=16), 3.0),
    "consume.by_key16": (floor, service(typed, workers=by_key(16)), 4.5),
    "consume.batch64": (floor, service(batched, batch=64), 1.8),
    "consume.memory": (floor, from_memory, 3.0),
}
"""Name to floor, subject, and the target as a multiple of the floor."""
