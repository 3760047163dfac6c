"""What the runtime costs per delivery, as a multiple of a floor that has no framework.

    python benchmarks/consume.py [--rounds N] [--only NAME ...] [--backend asyncio|uvloop|trio]
    python benchmarks/consume.py --count ROW --deliveries N     (for valgrind --tool=callgrind)

The floor takes from a deque, validates the JSON with pydantic, awaits the handler and
counts. Each row runs between two runs of its floor, garbage collection off; its ratio is
the median over such triples, because a shared machine drifts between them. Instructions
per delivery are the difference of two counted runs: (cost of 2n - cost of n) / n.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import anyio
from pydantic import BaseModel, TypeAdapter
from pystream import Context, Header, PyStream, by_key, mount
from pystream.errors import SubscriptionEnded
from pystream.memory import MemoryBroker, MemorySubscription
from pystream.protocols import Delivery, Mounting

DELIVERIES = 20_000


class Order(BaseModel):
    """Five fields; 99 bytes of JSON."""

    id: int
    sku: str
    price: float
    paid: bool
    tags: list[str]


PAYLOAD = json.dumps(
    {"id": 4711, "sku": "bolt-M8x40-A2", "price": 12.75, "paid": True, "tags": ["red", "steel", "small"]}
).encode()


@dataclass(slots=True)
class ReadyDelivery:
    """A delivery whose settlements do nothing."""

    payload: bytes
    key: str
    lane_key: str
    id: str = "1"
    destination: str = "orders"
    headers: dict[str, bytes] = field(default_factory=lambda: {"x-request-id": b"4711"})
    delivery_count: int = 1
    decode_error: None = None
    retry: None = None

    async def ack(self) -> None:
        """Nothing to do."""

    reject = requeue = ack

    def release(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class ReadySource:
    """The descriptor of `ReadyBroker`."""

    name: str = "orders"
    retry: str = "broker"
    batch_wait: None = None
    max_delay: None = None
    parameters: ClassVar[dict[Any, Any]] = {}


class ReadyBroker:
    """Hands out deliveries that are ready in a deque, then ends."""

    source_types = (ReadySource,)

    def __init__(self, deliveries: deque[Delivery]) -> None:
        self._deliveries = deliveries
        self.delayed = 0

    def default_source(self, name: str) -> ReadySource:
        """A source of that name."""
        return ReadySource(name)

    def describe(self) -> str:
        """Its address."""
        return "ready://"

    async def connect(self, clock: object) -> ReadyBroker:
        """Itself: it is its own connection and stream."""
        return self

    async def subscribe(self, source: object, mounting: Mounting) -> ReadyBroker:
        """Itself."""
        return self

    def publisher(self, policy: object = None) -> Any:
        """There is none."""

    def take(self) -> Delivery | None:
        """The next one."""
        return self._deliveries.popleft() if self._deliveries else None

    async def wait(self) -> None:
        """Ends when nothing is left."""
        if not self._deliveries:
            raise SubscriptionEnded("all deliveries are handled")

    def interrupt(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing is open."""


async def typed(order: Order) -> None:
    """The handler of the model only."""


async def with_context(order: Order, context: Context) -> None:
    """The same with a context."""


async def with_header(order: Order, request: Annotated[str, Header("x-request-id")]) -> None:
    """The same with a header."""


async def raw(body: bytes) -> None:
    """The handler of bytes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    handler: Callable[..., Awaitable[None]]
    target: float
    settings: dict[str, Any] = field(default_factory=dict)
    memory: bool = False


ROWS = {
    "consume.default": Row(typed, 2.5),
    "consume.context": Row(with_context, 3.0),
    "consume.header": Row(with_header, 3.0),
    "consume.bytes": Row(raw, 8.0),
    "consume.workers16": Row(typed, 3.0, {"workers": 16}),
    "consume.by_key16": Row(typed, 4.5, {"workers": by_key(16)}),
    "consume.memory": Row(typed, 3.0, memory=True),
}


async def floor(row: Row, count: int) -> float:
    """Seconds without a framework."""
    handler: Any = row.handler if row.handler is raw else typed
    deliveries, validate, handled = ready(count), TypeAdapter(Order).validator.validate_json, 0
    started = time.perf_counter()
    if handler is raw:
        while deliveries:
            await handler(deliveries.popleft().payload)
            handled += 1
    else:
        while deliveries:
            await handler(validate(deliveries.popleft().payload))
            handled += 1

    return time.perf_counter() - started


def ready(count: int) -> deque[Any]:
    """So many deliveries over 97 keys."""
    keys = [f"key-{number}" for number in range(97)]
    return deque(ReadyDelivery(PAYLOAD, keys[i % 97], keys[i % 97]) for i in range(count))


async def framework(row: Row, count: int) -> float:
    """Seconds through the whole runtime."""
    return await (from_memory(row, count) if row.memory else from_deque(row, count))


async def from_deque(row: Row, count: int) -> float:
    """The deliveries lie in a deque; the stream ends after the last."""
    app = PyStream("bench", plugins=[], on_subscription_end="log")
    app.with_broker(ReadyBroker(ready(count)), mount(row.handler, ReadySource(), **row.settings))  # type: ignore[arg-type]  # a stand-in
    async with app.start() as running:
        started = time.perf_counter()
        while running.health.active:
            await running.health.changed()

        return time.perf_counter() - started


async def from_memory(row: Row, count: int) -> float:
    """The messages lie in the memory broker's log; the last one is told apart by its handler's count."""
    broker, handled, done = MemoryBroker(), 0, anyio.Event()

    async def handler(order: Order) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            done.set()

    first = PyStream("open", plugins=[]).with_broker(broker, mount(handler, MemorySubscription("orders"), name="bench"))
    async with first.start() as running:  # a subscription has to be known before anything is kept for it
        pass

    producer = PyStream("fill", plugins=[]).with_broker(broker)
    async with producer.start() as running:
        publisher = running.publisher()
        for _ in range(count):
            await publisher.publish(PAYLOAD, "orders")

    app = PyStream("bench", plugins=[]).with_broker(broker, mount(handler, MemorySubscription("orders"), name="bench"))
    started = 0.0

    @app.on_startup
    def begin() -> None:
        nonlocal started
        started = time.perf_counter()

    async with app.start():
        await done.wait()
        return time.perf_counter() - started


async def measure(name: str, rounds: int) -> None:
    """Print one row."""
    row, ratios, times = ROWS[name], [], []
    for _ in range(rounds):
        before = await floor(row, DELIVERIES)
        taken = await framework(row, DELIVERIES)
        after = await floor(row, DELIVERIES)
        ratios.append(2 * taken / (before + after))
        times.append(taken / DELIVERIES * 1e6)

    print(
        f"{name:20} {min(ratios):6.2f} {statistics.median(ratios):6.2f} {max(ratios):6.2f}"
        f"   target {row.target:4.1f}   {statistics.median(times):6.2f} us"
    )


async def main(options: argparse.Namespace) -> None:
    """Run what was asked for."""
    gc.disable()
    if options.count:
        name, _, kind = options.count.partition("/")
        await (floor if kind == "floor" else framework)(ROWS[name], options.deliveries)
        return

    print(f"{'row':20} {'best':>6} {'median':>6} {'worst':>6}   times the floor, {options.backend}")
    for name in options.only or ROWS:
        await measure(name, options.rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=ROWS)
    parser.add_argument("--backend", choices=["asyncio", "uvloop", "trio"], default="asyncio")
    parser.add_argument("--count", metavar="ROW[/floor]")
    parser.add_argument("--deliveries", type=int, default=1000)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    trio = arguments.backend == "trio"
    anyio.run(
        main,
        arguments,
        backend="trio" if trio else "asyncio",
        backend_options={} if trio else {"use_uvloop": arguments.backend == "uvloop"},
    )
