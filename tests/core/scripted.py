"""A broker made of a script: it hands out what a test feeds it and writes down all that happens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from pystream._loops import Loop, current_loop
from pystream.errors import ConfigurationError, SettlementError, SettlementRejected
from pystream.protocols import GAP, Clock, Delivery, Gap, Key, Mounting, Outgoing, RetryKind, SourceParameters
from pystream.signal import Signal

__all__ = [
    "DelayableDelivery",
    "Item",
    "Journal",
    "ScriptedBroker",
    "ScriptedDelivery",
    "ScriptedSource",
    "ScriptedSubscriber",
]

_PATIENCE = 10.0


class Journal:
    """What happened, one line each, in order; written from any thread.

    Attributes:
        lines: Such as `ack 1`, `retry_after 2`, `release 3`, `publish confirmed b"..."`.
        delays: Of every delayed retry, in order.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.delays: list[float] = []
        self._changed: tuple[Loop, anyio.Event] | None = None

    def add(self, line: str) -> None:
        self.lines.append(line)
        changed, self._changed = self._changed, None
        if changed is None:
            return

        loop, event = changed
        event.set() if loop.is_current() else loop.post(event.set)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is looked at after each line."""
        with anyio.fail_after(_PATIENCE):
            while True:
                changed = self._changed
                if changed is None:  # before the look: another thread may write meanwhile
                    changed = self._changed = current_loop(), anyio.Event()

                if condition():
                    return

                await changed[1].wait()

    async def shows(self, line: str) -> None:
        await self.until(lambda: line in self.lines)


class ScriptedDelivery:
    """A delivery that writes down how it ends; it ends once, as the contract says."""

    def __init__(
        self,
        id: str = "1",  # noqa: A002  # the contract's word for it
        payload: bytes = b"{}",
        *,
        headers: Mapping[str, bytes] | None = None,
        key: Key | None = None,
        count: int | None = None,
        decode_error: Exception | None = None,
        header_error: Exception | None = None,
        refusal: Exception | None = None,
        refusals: Mapping[str, Exception] | None = None,
        retry: RetryKind | None = None,
    ) -> None:
        self.id = id
        self.destination = "orders"
        self.payload = payload
        self.key = self.lane_key = key
        self.delivery_count = count
        self.decode_error = decode_error
        self.retry = retry
        self.header_reads = 0
        self.ends: list[str] = []
        self.stream: ScriptedSubscriber | None = None
        self._headers = headers or {}
        self._header_error = header_error
        self._refusal = refusal
        self._refusals = refusals or {}

    @property
    def headers(self) -> Mapping[str, bytes]:
        self.header_reads += 1
        if self._header_error is not None:
            raise self._header_error

        return self._headers

    async def ack(self) -> None:
        self._end("ack")

    async def reject(self) -> None:
        self._end("reject")

    async def requeue(self) -> None:
        self._end("requeue")

    def release(self) -> None:
        if "release" not in self.ends:
            self._note("release")

    def _end(self, kind: str) -> None:
        refusal = self._refusals.get(kind, self._refusal)
        if refusal is not None:
            self._note(f"refused {kind}")
            raise refusal

        already = any(not end.startswith("refused") for end in self.ends)
        self._note(kind)
        if already:
            raise SettlementError(f"{self.id} is settled twice")

    def _note(self, kind: str) -> None:
        self.ends.append(kind)
        assert self.stream is not None, "ended before it was taken"
        self.stream.ended(self, kind)


class DelayableDelivery(ScriptedDelivery):
    """The same with the capability `RetryAfter`."""

    async def retry_after(self, delay: float) -> None:
        assert self.stream is not None
        longest = self.stream.max_delay
        if longest is not None and delay >= longest:
            self._note("refused retry_after")
            raise SettlementRejected(f"{delay} s is too long")

        self.stream.journal.delays.append(delay)
        self._end("retry_after")


Item = ScriptedDelivery | Gap | Exception
"""What a stream holds: deliveries, a cut, and errors that the next wait raises."""


class ScriptedSubscriber:
    """A stream of what it is fed.

    Attributes:
        unsettled: What was taken and has not ended.
        most_unsettled: The largest number of it so far.
        waiters: How many tasks wait now.
        most_waiters: The largest number of it so far.
    """

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self.items: deque[Item] = deque()
        self.taken: list[ScriptedDelivery] = []
        self.unsettled: set[ScriptedDelivery] = set()
        self.most_unsettled = 0
        self.waiters = 0
        self.most_waiters = 0
        self.delayed = 0
        self.max_delay: float | None = None
        self.ends = 0
        self._lock = threading.Lock()
        self._signal = Signal()

    def feed(self, *items: Item) -> None:
        self.items.extend(items)
        self._signal.wake()

    def take(self) -> Delivery | Gap | None:
        if not self.items or isinstance(self.items[0], Exception):
            return None

        item = self.items.popleft()
        if item is GAP:
            return GAP

        assert isinstance(item, ScriptedDelivery)
        item.stream = self
        self.taken.append(item)
        with self._lock:
            self.unsettled.add(item)
            self.most_unsettled = max(self.most_unsettled, len(self.unsettled))

        return item

    async def wait(self) -> None:
        self.waiters += 1
        self.most_waiters = max(self.most_waiters, self.waiters)
        try:
            if not self.items:
                await self._signal.wait()
        finally:
            self.waiters -= 1

        if self.items and isinstance(self.items[0], Exception):
            error = self.items.popleft()
            assert isinstance(error, Exception)
            raise error

    def interrupt(self) -> None:
        self._signal.wake()

    def ended(self, delivery: ScriptedDelivery, kind: str) -> None:
        with self._lock:
            self.unsettled.discard(delivery)
            self.ends += 1

        self.journal.add(f"{kind} {delivery.id}")

    async def close(self) -> None:
        self.journal.add(f"close {self.name}")


@dataclass(frozen=True, slots=True)
class ScriptedSource:
    name: str = "orders"
    retry: RetryKind = "broker"
    max_delay: float | None = None
    parameters: SourceParameters = field(default_factory=dict, hash=False)
    batch_wait: float | None = None
    copies_to: str | None = "orders"


@dataclass(frozen=True, slots=True)
class ScriptedPolicy:
    options: type | None = None


class ScriptedBroker:
    """Broker and connection in one; sends nothing anywhere.

    Attributes:
        sent: What was published, in order.
        publish_errors: Raised by the next publishes, one each.
        mountings: What each subscription was opened with.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self.sent: list[Outgoing] = []
        self.publish_errors: deque[BaseException] = deque()
        self.mountings: list[Mounting] = []
        self._streams: dict[str, ScriptedSubscriber] = {}

    @property
    def source_types(self) -> tuple[type, ...]:
        return (ScriptedSource,)

    def stream(self, name: str = "orders") -> ScriptedSubscriber:
        """The stream of a source; may be fed before it is opened."""
        if name not in self._streams:
            self._streams[name] = ScriptedSubscriber(name, self.journal)

        return self._streams[name]

    def default_source(self, name: str) -> ScriptedSource:
        if not name:
            raise ConfigurationError("a scripted source has a name")

        return ScriptedSource(name)

    def describe(self) -> str:
        return "scripted://"

    async def connect(self, clock: Clock) -> ScriptedBroker:
        return self

    async def subscribe(self, source: Any, mounting: Mounting) -> ScriptedSubscriber:
        self.mountings.append(mounting)
        stream = self.stream(source.name)
        stream.max_delay = source.max_delay
        return stream

    def publisher(self, policy: Any = None) -> ScriptedBroker:
        return self

    def default_policy(self) -> ScriptedPolicy:
        return ScriptedPolicy()

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        if self.publish_errors:
            self.journal.add(f"unpublished {outgoing.destination}")
            raise self.publish_errors.popleft()

        self.sent.append(outgoing)
        self.journal.add(f"publish {outgoing.destination} {outgoing.payload.decode()}")

    async def close(self) -> None:
        self.journal.add("close broker")
