"""What the Pulsar driver costs per message, over a transport that costs nothing.

Two rows: a bare loop over the same messages, and take + ack through the driver. Run it
with `python benchmarks/pulsar_driver.py [messages]`; the figures are the median of nine
interleaved rounds, with garbage collection off.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import deque
from typing import Any

import anyio
from pystream.clock import LoopClock
from pystream.protocols import Mounting
from pystream_pulsar import ConnectedPulsarBroker, PulsarSubscription
from pystream_pulsar.transport import ServerInfo

ROUNDS = 9


class Message:
    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class Consumer:
    """Brings what it was given, and counts the acknowledgements."""

    failure = None

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.acked = 0

    def pull(self, room: int) -> list[Message]:
        messages = self.messages
        return [messages.popleft() for _ in range(min(room, len(messages)))]

    def ack(self, _raw: Message) -> None:
        self.acked += 1

    async def close(self) -> None:
        """Nothing to close."""


class Transport:
    def __init__(self) -> None:
        self.consumer = Consumer()

    async def connect(self) -> ServerInfo:
        return ServerInfo()

    async def subscribe(self, _spec: object, _wake: object) -> Consumer:
        return self.consumer

    async def close(self) -> None:
        """Nothing to close."""


def payloads(number: int) -> list[Message]:
    """That many messages of 99 bytes."""
    return [Message(b"%099d" % index) for index in range(number)]


async def bare(consumer: Consumer) -> None:
    """Everything there is, without the driver."""
    while raws := consumer.pull(16):
        for raw in raws:
            consumer.ack(raw)


async def through_driver(subscriber: Any) -> None:
    """Everything there is, taken and acknowledged."""
    take = subscriber.take
    while (message := take()) is not None:
        await message.ack()


async def main(number: int) -> None:
    """Measure the rows in turn, and print them."""
    transport = Transport()
    connection = ConnectedPulsarBroker(transport, clock=LoopClock())
    driver = await connection.subscribe(PulsarSubscription("orders", "bench"), Mounting(name="bench"))
    rows: dict[str, list[float]] = {"bare loop": [], "driver, take + ack": []}
    for _ in range(ROUNDS):
        for name, work in (("bare loop", bare(transport.consumer)), ("driver, take + ack", through_driver(driver))):
            transport.consumer.messages.extend(payloads(number))
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            await work
            rows[name].append((time.perf_counter() - start) / number * 1e9)
            gc.enable()

    assert transport.consumer.acked == 2 * ROUNDS * number
    for name, values in rows.items():
        sys.stdout.write(f"{name:20} {statistics.median(values):6.0f} ns per message (best {min(values):.0f})\n")


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
