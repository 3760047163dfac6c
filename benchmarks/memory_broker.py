"""What the memory broker costs per message: publishing, taking and acknowledging.

Every figure is nanoseconds per message, minimum and median over interleaved rounds with
garbage collection off. Run it as a script: `python benchmarks/memory_broker.py`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

import anyio
from pystream.clock import LoopClock
from pystream.memory import ConnectedMemoryBroker, MemoryBroker, MemorySubscriber
from pystream.protocols import Mounting, Outgoing

_WINDOW = 16


async def _open(subscriptions: int) -> tuple[ConnectedMemoryBroker, list[MemorySubscriber]]:
    broker = MemoryBroker("benchmark")
    connection = await broker.connect(LoopClock())
    source = broker.default_source("orders")
    opened = [await connection.subscribe(source, Mounting(name=f"handler-{i}")) for i in range(subscriptions)]
    return connection, opened


async def _fill(connection: ConnectedMemoryBroker, count: int, headers: dict[str, bytes]) -> int:
    publisher = connection.publisher()
    outgoing = Outgoing("orders", b"x" * 99, headers)
    began = perf_counter_ns()
    for _ in range(count):
        await publisher.publish(outgoing)

    return perf_counter_ns() - began


async def publish(count: int) -> int:
    """Publish to one subscription, without headers."""
    connection, _ = await _open(1)
    return await _fill(connection, count, {})


async def publish_headers(count: int) -> int:
    """Publish to one subscription, with three headers."""
    connection, _ = await _open(1)
    return await _fill(connection, count, {"trace": b"1", "tenant": b"2", "kind": b"3"})


async def take_ack(count: int) -> int:
    """Take and acknowledge in order, one in hand."""
    connection, (subscriber,) = await _open(1)
    await _fill(connection, count, {})
    began = perf_counter_ns()
    while (delivery := subscriber.take()) is not None:
        await delivery.ack()

    return perf_counter_ns() - began


async def take_ack_window(count: int) -> int:
    """Take sixteen, acknowledge them in reverse order."""
    connection, (subscriber,) = await _open(1)
    await _fill(connection, count, {})
    began = perf_counter_ns()
    for _ in range(count // _WINDOW):
        window = [subscriber.take() for _ in range(_WINDOW)]
        for delivery in reversed(window):
            if delivery is not None:
                await delivery.ack()

    return perf_counter_ns() - began


async def fan_out(count: int) -> int:
    """Take and acknowledge in order on each of ten subscriptions; per delivery."""
    connection, subscribers = await _open(10)
    await _fill(connection, count // 10, {})
    began = perf_counter_ns()
    for subscriber in subscribers:
        while (delivery := subscriber.take()) is not None:
            await delivery.ack()

    return perf_counter_ns() - began


async def requeue(count: int) -> int:
    """Take, requeue, take again and acknowledge."""
    connection, (subscriber,) = await _open(1)
    await _fill(connection, count, {})
    began = perf_counter_ns()
    while (delivery := subscriber.take()) is not None:
        if delivery.delivery_count == 1:
            await delivery.requeue()
        else:
            await delivery.ack()

    return perf_counter_ns() - began


ROWS: tuple[Callable[[int], Awaitable[int]], ...] = (
    publish,
    publish_headers,
    take_ack,
    take_ack_window,
    fan_out,
    requeue,
)


async def measure(count: int, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds per message of each row, by round."""
    figures: dict[str, list[float]] = {row.__name__: [] for row in ROWS}
    for _ in range(rounds):
        for row in ROWS:
            gc.collect()
            gc.disable()
            try:
                figures[row.__name__].append(await row(count) / count)
            finally:
                gc.enable()

    return figures


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000, help="messages per row and round")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds")
    arguments = parser.parse_args()
    figures = anyio.run(measure, arguments.messages, arguments.rounds)
    lines = [f"{'ns per message':<20}{'minimum':>10}{'median':>10}"]
    lines += [f"{name:<20}{min(row):>10.0f}{statistics.median(row):>10.0f}" for name, row in figures.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
