# Without `from __future__ import annotations`: the peer reads the handlers' annotations, which are local names here.
"""FastStream's consume path over a Kafka consumer that is a deque, and its test broker; needs no server.

What is measured: the subscriber's own loop (`getone`, then parsing, decoding, middlewares,
dependency injection and the handler) with its defaults, which for Kafka leave the commit to
the consumer, so nothing is acknowledged. The stand-in takes the place of aiokafka's
consumer; `TestKafkaBroker` only spares the connection, no mock is near the handlers.
Beside `testapp.publish` it is the test broker itself, as FastStream's users have it in tests.
"""

import asyncio
import importlib
import importlib.util
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

from benchmarks.consume import Subject
from benchmarks.payload import PAYLOAD, REQUEST, REQUEST_HEADER, Order, validate

SECONDS = 120.0  # the peer logs what its handlers raise and goes on, so a mistake here would wait forever


class _ReadyConsumer:
    def __init__(self, records: deque[Any]) -> None:
        self._records = records
        self.began = 0.0

    def subscribe(self, **_settings: Any) -> None:
        """Everything is subscribed."""

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def getone(self) -> Any:
        if not self.began:
            self.began = time.perf_counter()

        if not self._records:
            await asyncio.sleep(SECONDS)

        return self._records.popleft()


def faststream_rows() -> dict[str, Subject]:
    """Row to FastStream's subject; empty where it is not installed."""
    if importlib.util.find_spec("faststream") is None or importlib.util.find_spec("aiokafka") is None:
        return {}

    return {
        "consume.default": _through(_model),
        "consume.context": _through(_context),
        "consume.header": _through(_header),
        "consume.bytes": _through(_bytes, content_type=b"application/octet-stream"),
        "consume.workers16": _through(_model, max_workers=16),
        "testapp.publish": _in_memory,
    }


def faststream_name() -> tuple[str, str]:
    """Name and version for the table."""
    return "FastStream (Kafka)", version("faststream")


def _model(subscriber: Any, count: Callable[[], None]) -> None:
    @subscriber  # type: ignore[untyped-decorator]  # the peer is no requirement of the type check
    async def handle(order: Order) -> None:
        count()


def _context(subscriber: Any, count: Callable[[], None]) -> None:
    message_type = importlib.import_module("faststream.kafka.annotations").KafkaMessage

    @subscriber  # type: ignore[untyped-decorator]  # as above
    async def handle(order: Order, message: message_type) -> None:  # type: ignore[valid-type]  # found at run time
        count()


def _header(subscriber: Any, count: Callable[[], None]) -> None:
    header = importlib.import_module("faststream").Header

    @subscriber  # type: ignore[untyped-decorator]  # as above
    async def handle(order: Order, request: Annotated[str, header(REQUEST_HEADER)]) -> None:
        count()


def _bytes(subscriber: Any, count: Callable[[], None]) -> None:
    @subscriber  # type: ignore[untyped-decorator]  # as above
    async def handle(payload: bytes) -> None:
        count()


def _through(
    declare: Callable[[Any, Callable[[], None]], None], content_type: bytes = b"application/json", **settings: Any
) -> Subject:
    async def subject(count: int) -> float:
        kafka = importlib.import_module("faststream.kafka")
        broker = kafka.KafkaBroker(logger=None, allow_auto_create_topics=False)
        subscriber = broker.subscriber("orders", group_id="bench", **settings)
        handled, done = 0, asyncio.Event()

        def one_more() -> None:
            nonlocal handled
            handled += 1
            if handled == count:
                done.set()

        declare(subscriber, one_more)
        consumer = _ReadyConsumer(_records(count, content_type))
        async with kafka.TestKafkaBroker(broker, connect_only=True):
            broker.config.broker_config.builder = lambda **_settings: consumer
            await subscriber.start()
            await asyncio.wait_for(done.wait(), SECONDS)
            taken = time.perf_counter() - consumer.began
            await subscriber.stop()

        return taken

    return subject


async def _in_memory(count: int) -> float:
    kafka = importlib.import_module("faststream.kafka")
    broker = kafka.KafkaBroker(logger=None)
    handled = 0

    def one_more() -> None:
        nonlocal handled
        handled += 1

    _model(broker.subscriber("orders", group_id="bench"), one_more)
    order = validate(PAYLOAD)
    async with kafka.TestKafkaBroker(broker):
        started = time.perf_counter()
        for _ in range(count):
            await broker.publish(order, "orders")

        taken = time.perf_counter() - started

    if handled != count:
        raise RuntimeError(f"FastStream's test broker: {handled} of {count} orders were handled")

    return taken


def _records(count: int, content_type: bytes) -> deque[Any]:
    record = importlib.import_module("aiokafka").ConsumerRecord
    headers = (("content-type", content_type), (REQUEST_HEADER, REQUEST))
    return deque(
        record("orders", 0, offset, 0, 0, b"key", PAYLOAD, None, 3, len(PAYLOAD), headers) for offset in range(count)
    )
