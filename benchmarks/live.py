"""The live rows: four loops that differ only in what carries the messages.

Each round gives every loop a topic of its own: the loop attaches its consumer, the topic is
filled and its producer closed, and then the window opens, until the last settlement. All
have the same queue size, validation and handler; each acknowledges a message after its
handler. The first round is calibration and is discarded.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pulsar

from benchmarks.live_loops import LOOPS, Attached, Window
from benchmarks.measuring import row
from benchmarks.payload import body

_WAITS = 0.75
"""A loop whose thread worked for less than this share of its window was waiting for the server."""

_numbers = itertools.count(1)

_TARGETS: dict[str, tuple[tuple[str, str, float | None, float | None], ...]] = {
    "live.consume.batched": (
        ("service", "pulsar.asyncio", 4.0, 4.0),
        ("plugin", "pulsar.asyncio", 5.0, 5.0),
        ("plugin", "raw", 0.75, 0.75),
        ("service", "raw", 0.6, None),
    ),
    "live.consume.single": (
        ("service", "pulsar.asyncio", None, 3.0),
        ("plugin", "pulsar.asyncio", None, 4.0),
        ("plugin", "raw", None, 0.6),
        ("service", "raw", None, None),
    ),
}
"""Row to loop, the loop it is compared with, and the targets for its rate and its messages per CPU second."""


async def measure(name: str, url: str, *, count: int, rounds: int, log: Callable[[str], None]) -> dict[str, Any]:
    """One live row.

    Args:
        name: `live.consume.batched` or `live.consume.single`.
        url: The service URL.
        count: Messages per loop and round.
        rounds: How often, besides the calibration.
        log: Told of the progress.
    """
    batched = name.endswith(".batched")
    windows: dict[str, list[Window]] = {loop: [] for loop in LOOPS}
    for number in range(rounds + 1):
        for loop, run in _rotated(number):
            window = await _round(url, run, count, batched)
            if number:
                windows[loop].append(window)

        log(f"{name}: round {number} of {rounds}")

    return _row(name, windows)


def _rotated(number: int) -> list[tuple[str, Callable[[str, str, Attached], Awaitable[Window]]]]:
    """The loops, each round beginning with another one."""
    loops = list(LOOPS.items())
    place = number % len(loops)
    return loops[place:] + loops[:place]


async def _round(url: str, run: Callable[[str, str, Attached], Awaitable[Window]], count: int, batched: bool) -> Window:
    topic = f"persistent://public/default/bench-{os.getpid()}-{time.time_ns()}-{next(_numbers)}"

    async def attached() -> int:
        await anyio.to_thread.run_sync(_fill, url, topic, count, batched)
        return count

    with anyio.fail_after(120):
        window = await run(url, topic, attached)

    await anyio.to_thread.run_sync(_unsubscribe, url, topic)
    return window


def _fill(url: str, topic: str, count: int, batched: bool) -> None:
    client = _client(url)
    try:
        producer = client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
            max_pending_messages=5000,
        )
        for number in range(count):
            producer.send_async(body(10_000 + number), lambda *_: None)

        producer.flush()
    finally:
        client.close()


def _unsubscribe(url: str, topic: str) -> None:
    client = _client(url)
    try:
        client.subscribe(topic, "bench", consumer_type=pulsar.ConsumerType.Shared).unsubscribe()
    finally:
        client.close()


def _client(url: str) -> Any:
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def _row(name: str, windows: dict[str, list[Window]]) -> dict[str, Any]:
    rates = {loop: [window.rate for window in found] for loop, found in windows.items()}
    per_cpu = {loop: [window.per_cpu_second for window in found] for loop, found in windows.items()}
    comparisons = [
        {
            "of": loop,
            "to": other,
            "ratio": _ratio(rates, loop, other),
            "target": target,
            "cpu_ratio": _ratio(per_cpu, loop, other),
            "cpu_target": cpu_target,
        }
        for loop, other, target, cpu_target in _TARGETS[name]
    ]
    ratios = _ratios(rates, "service", "raw")
    (target,) = [target for loop, other, target, _ in _TARGETS[name] if (loop, other) == ("service", "raw")]
    result = row(name, "messages/s", rates["service"], ratios, target)
    waiting = sum(window.busy < _WAITS for window in windows["service"])
    if 2 * waiting > len(ratios):
        result["verdict"] = "server-bound"

    peer = {"name": "pulsar.asyncio", "version": pulsar.__version__, "ratio": _ratio(rates, "pulsar.asyncio", "raw")}
    return result | {
        "cpu_ratio": _ratio(per_cpu, "service", "raw"),
        "server_bound_rounds": waiting,
        "peers": [peer | {"cpu_ratio": _ratio(per_cpu, "pulsar.asyncio", "raw")}],
        "comparisons": comparisons,
        "loops": {loop: _loop(found) for loop, found in windows.items()},
    }


def _loop(windows: list[Window]) -> dict[str, Any]:
    rates = [window.rate for window in windows]
    return {
        "best": max(rates),
        "median": statistics.median(rates),
        "worst": min(rates),
        "per_cpu_second": statistics.median(window.per_cpu_second for window in windows),
        "busy": statistics.median(window.busy for window in windows),
    }


def _ratios(values: dict[str, list[float]], loop: str, other: str) -> list[float]:
    return [mine / its for mine, its in zip(values[loop], values[other], strict=True)]


def _ratio(values: dict[str, list[float]], loop: str, other: str) -> float:
    return statistics.median(_ratios(values, loop, other))
