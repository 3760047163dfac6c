"""The loops of the live rows: the client alone, the plugin alone, the service, and the client's own asyncio API."""

from __future__ import annotations

import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import pulsar
import pulsar.asyncio
from pystream import PyStream, mount
from pystream.clock import LoopClock
from pystream.protocols import Mounting
from pystream.signal import Signal
from pystream_pulsar import PulsarBroker, PulsarSubscription
from pystream_pulsar._client import binding
from pystream_pulsar._client.drain import ArmedDrain
from pystream_pulsar._client.logs import log_file
from pystream_pulsar.transport import ConsumerSpec

from benchmarks.payload import Order, typed, validate

QUEUE = 1000
_PULL = 64

Attached: TypeAlias = "Callable[[], Awaitable[int]]"
"""To be awaited when the consumer is attached: fills the topic; answers how many messages are there."""


@dataclass(frozen=True, slots=True)
class Window:
    """What one loop needed for its messages.

    Attributes:
        count: How many messages.
        seconds: On the wall.
        cpu: Processor time of the whole process: the loop and the client's threads.
        loop: Processor time of the loop's thread.
    """

    count: int
    seconds: float
    cpu: float
    loop: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.count / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """Messages per second of the client's processor time."""
        return self.count / self.cpu

    @property
    def busy(self) -> float:
        """The share of the time in which the loop's thread worked."""
        return self.loop / self.seconds


class _Watch:
    """Started when the window opens."""

    def __init__(self) -> None:
        self._before = self._now()

    def stop(self, count: int) -> Window:
        seconds, cpu, loop = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return Window(count, seconds, cpu, loop)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), usage.ru_utime + usage.ru_stime, time.thread_time()


async def raw(url: str, topic: str, attached: Attached) -> Window:
    """The client alone: its messages drained without waiting, as the plugin drains them, 64 at a time."""
    client = binding.new_client(url, operation_timeout=30, connection_timeout=10, io_threads=1, log_file=log_file())
    spec = ConsumerSpec(
        topic=topic, subscription="bench", type="Shared", initial_position="Earliest", receiver_queue_size=QUEUE
    )
    consumer = client.subscribe(topic, spec.subscription, binding.consumer_configuration(spec))
    signal = Signal()
    pull, acknowledge = ArmedDrain(consumer, signal.wake_from_thread).pull, consumer.acknowledge
    left = count = await attached()
    watch = _Watch()
    while left:
        messages = pull(_PULL)
        for message in messages:
            await typed(validate(message.data()))
            acknowledge(message)

        left -= len(messages)
        if left and len(messages) < _PULL:
            await signal.wait()

    window = watch.stop(count)
    client.close()
    return window


async def plugin(url: str, topic: str, attached: Attached) -> Window:
    """The plugin without the runtime."""
    connection = await PulsarBroker(url).connect(LoopClock())
    subscriber = await connection.subscribe(_source(topic), Mounting(name="bench"))
    left = count = await attached()
    watch = _Watch()
    while left:
        delivery = subscriber.take()
        if delivery is None:
            await subscriber.wait()
            continue

        await typed(validate(delivery.payload))
        await delivery.ack()
        left -= 1

    window = watch.stop(count)
    await subscriber.close()
    await connection.close()
    return window


async def service(url: str, topic: str, attached: Attached) -> Window:
    """A started service, its first message held until the topic is full."""
    opened, settled = anyio.Event(), anyio.Event()
    left = count = 0

    async def handler(order: Order) -> None:
        nonlocal left
        if not opened.is_set():
            await opened.wait()

        left -= 1
        if not left:
            settled.set()  # the waiting task runs after the acknowledgement, which does not suspend

    app = PyStream("bench", plugins=[]).with_broker(PulsarBroker(url), mount(handler, _source(topic), name="bench"))
    async with app.start():
        left = count = await attached()
        watch = _Watch()
        opened.set()
        await settled.wait()
        return watch.stop(count)


async def client_asyncio(url: str, topic: str, attached: Attached) -> Window:
    """The asyncio API that pulsar-client ships: receive and acknowledge, one after the other."""
    client = pulsar.asyncio.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer: Any = await client.subscribe(
        topic, "bench", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=QUEUE
    )
    left = count = await attached()
    watch = _Watch()
    for _ in range(left):
        message = await consumer.receive()
        await typed(validate(message.data()))
        await consumer.acknowledge(message)

    window = watch.stop(count)
    await client.close()
    return window


def _source(topic: str) -> PulsarSubscription:
    return PulsarSubscription(topic, "bench", receiver_queue_size=QUEUE)


LOOPS: dict[str, Callable[[str, str, Attached], Awaitable[Window]]] = {
    "raw": raw,
    "plugin": plugin,
    "service": service,
    "pulsar.asyncio": client_asyncio,
}
