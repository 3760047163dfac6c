"""A transport whose every move a test writes down, and a clock that a test moves."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast

from pystream.errors import DecodeError
from pystream.protocols import Mounting, Outgoing
from pystream_pulsar import PulsarMessage, PulsarSubscription
from pystream_pulsar._driver.driver import Driver, open_driver
from pystream_pulsar.transport import ConsumerSpec, Identity, ProducerSpec, RawMessage, ServerInfo

TOPIC = "persistent://public/default/orders"


class ManualClock:
    """Time stands still until `advance`, which fires what is due in order."""

    def __init__(self) -> None:
        self._now = 100.0
        self._calls: list[tuple[float, int, ManualTimer]] = []
        self._number = count()

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], object]) -> ManualTimer:
        assert delay >= 0
        timer = ManualTimer(callback)
        heapq.heappush(self._calls, (self._now + delay, next(self._number), timer))
        return timer

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            at, _, timer = heapq.heappop(self._calls)
            self._now = max(self._now, at)
            timer.fire()

        self._now = max(self._now, end)

    @property
    def armed(self) -> int:
        """How many calls are still to come."""
        return sum(timer.callback is not None for _, _, timer in self._calls)


class ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


@dataclass(eq=False)
class Raw:
    """A received message; two objects are two copies even where all else is equal."""

    payload: bytes = b""
    entry: int = 0
    index: int = -1
    batch_size: int = 1
    redelivery_count: int = 0
    topic: str = TOPIC
    ledger: int = 7
    chunked: bool = False
    position: bytes = b"position"
    key: str | None = None
    ordering_key: str | None = None
    props: Mapping[str, str] | None = field(default_factory=dict)
    publish_time: float = 1.0
    event_time: float | None = None
    producer_name: str = "producer"
    copy: int = 0

    @property
    def identity(self) -> Identity:
        return Identity(self.topic, self.ledger, self.entry, self.index)

    @property
    def properties(self) -> Mapping[str, str]:
        if self.props is None:
            raise DecodeError("a property is not UTF-8")

        return self.props


def batch(*indices: int, entry: int = 1, size: int = 4, count: int = 0, topic: str = TOPIC) -> list[Raw]:
    """Fresh copies of these messages of a producer batch."""
    return [
        Raw(f"{entry}/{index}".encode(), entry, index, batch_size=size, redelivery_count=count, topic=topic)
        for index in indices
    ]


class ScriptedConsumer:
    def __init__(self, spec: ConsumerSpec, wake: Callable[[], None]) -> None:
        self.spec = spec
        self.wake = wake
        self.waiting: deque[Raw] = deque()
        self.acked: list[Raw] = []
        self.nacked: list[Raw] = []
        self.pulls: list[int] = []
        self.refuses: Exception | None = None
        self.failure: Exception | None = None
        self.closed = 0
        self.on_nack: Callable[[Raw], object] = lambda raw: None
        self._armed = False

    def feed(self, *raws: Raw) -> None:
        """Have these arrive."""
        self.waiting.extend(raws)
        if self._armed:
            self._armed = False
            self.wake()

    def pull(self, room: int) -> Sequence[Raw]:
        raws = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
        self.pulls.append(len(raws))
        self._armed = len(raws) < room
        return raws

    def ack(self, raw: RawMessage) -> None:
        assert not self.closed
        if self.refuses is not None:
            raise self.refuses

        self.acked.append(cast("Raw", raw))

    def nack(self, raw: RawMessage) -> None:
        assert not self.closed
        if self.refuses is not None:
            raise self.refuses

        self.nacked.append(cast("Raw", raw))
        self.on_nack(self.nacked[-1])

    async def close(self, *, unsubscribe: bool = False) -> None:
        assert not unsubscribe
        self.closed += 1


class ScriptedProducer:
    def __init__(self, spec: ProducerSpec) -> None:
        self.spec = spec
        self.sent: list[tuple[Outgoing, Callable[[Exception | None], None]]] = []
        self.in_line = False
        self.answer: Exception | None = None
        self.most_pending = 0
        self._pending = 0

    def send(self, outgoing: Outgoing, done: Callable[[Exception | None], None]) -> None:
        self._pending += 1
        self.most_pending = max(self.most_pending, self._pending)
        self.sent.append((outgoing, done))
        if self.in_line:
            self.confirm(self.answer)

    def confirm(self, error: Exception | None = None) -> None:
        """Answer the oldest message that has no answer yet."""
        self._pending -= 1
        self.sent[-self._pending - 1][1](error)

    async def close(self) -> None:
        """Nothing to do."""


class ScriptedTransport:
    """Opens at once, unless a test holds it back."""

    def __init__(self) -> None:
        self.consumers: list[ScriptedConsumer] = []
        self.producers: list[ScriptedProducer] = []
        self.opening: Callable[[ProducerSpec], object] = lambda spec: None
        self.refuses: Exception | None = None
        self.confirms_in_line = False
        self.answer: Exception | None = None
        self.closed = 0

    async def connect(self) -> ServerInfo:
        return ServerInfo("scripted")

    async def subscribe(self, spec: ConsumerSpec, wake: Callable[[], None]) -> ScriptedConsumer:
        if self.refuses is not None:
            raise self.refuses

        self.consumers.append(ScriptedConsumer(spec, wake))
        return self.consumers[-1]

    async def produce(self, spec: ProducerSpec) -> ScriptedProducer:
        held = self.opening(spec)
        if held is not None:
            await held  # type: ignore[misc]  # whatever a test gives to wait for

        if self.refuses is not None:
            raise self.refuses

        producer = ScriptedProducer(spec)
        producer.in_line, producer.answer = self.confirms_in_line, self.answer
        self.producers.append(producer)
        return producer

    async def close(self) -> None:
        self.closed += 1


class Stream:
    """A driver over a scripted consumer, and short words for what tests do with it."""

    def __init__(self, driver: Driver, consumer: ScriptedConsumer, clock: ManualClock) -> None:
        self.driver = driver
        self.consumer = consumer
        self.clock = clock

    def take(self) -> PulsarMessage:
        """The next message, which must be there."""
        message = self.driver.take()
        assert message is not None
        return message

    def take_all(self) -> list[PulsarMessage]:
        """Every message that can be taken now."""
        return list(iter(self.driver.take, None))

    def bring(self, *raws: Raw) -> list[PulsarMessage]:
        """Have these arrive, and take what comes of it."""
        self.consumer.feed(*raws)
        return self.take_all()


async def open_stream(source: PulsarSubscription | None = None, *, receiver_queue_size: int = 100) -> Stream:
    """A driver on a fresh consumer."""
    clock, transport = ManualClock(), ScriptedTransport()
    source = source or PulsarSubscription("orders", "billing")
    spec = ConsumerSpec(
        topic=source.topic.full_name,
        subscription=source.subscription_name,
        type=source.type.value,
        initial_position=source.initial_position.value,
        receiver_queue_size=receiver_queue_size,
    )
    driver = await open_driver(transport, source, spec, clock)
    return Stream(driver, transport.consumers[0], clock)


MOUNTING = Mounting(name="orders")
