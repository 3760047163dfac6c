"""One run of the demo: start the service, publish, wait for the end of every message, stop."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from pystream import PyStream, PyStreamError, RunningApp, ServiceState
from pystream.protocols import Broker

from examples.orders.books import Books, Sent
from examples.orders.plan import Messages, Plan
from examples.orders.producer import Producer
from examples.orders.report import Report, percentile
from examples.orders.service import Topics, make_app

__all__ = ["MakeApp", "Run"]

MakeApp = Callable[[Broker, Topics, Books], PyStream]
"""Makes the service; tests give one with a fault."""

_LOOK_EVERY = 0.05  # seconds; the measured times do not depend on it
_WORKING = (ServiceState.RUNNING, ServiceState.DEGRADED)


@dataclass(slots=True, kw_only=True)
class Run:
    """A run and its figures, which may be read while it goes on.

    Attributes:
        broker: Where the service runs.
        plan: What is published.
        make_app: Makes the service.
        patience: Seconds without any progress after which what is missing counts as lost.
        stop_within: Seconds that a stop by the user waits for what is published; the rest is left.
        books: What the service has done so far.
        sent: What was published so far.
        stopped_at: When the user asked for the end, by the monotonic clock, or none.
    """

    broker: Broker
    plan: Plan
    make_app: MakeApp = make_app
    patience: float = 10.0
    stop_within: float = 20.0
    books: Books = field(default_factory=Books)
    sent: Sent = field(default_factory=Sent)
    stopped_at: float | None = None
    _cut: bool = False

    def stop(self) -> None:
        """Publish nothing more, finish what is published, and end."""
        if self.stopped_at is None:
            self.stopped_at = time.monotonic()

    async def go(self) -> Report:
        """Do it all, and return the figures.

        Raises:
            PyStreamError: The service did not start or has failed, or a publish has failed.

        Cancel safety: a cancelled run aborts the service.
        """
        topics = Topics.of(secrets.token_hex(4))
        started = time.monotonic()
        async with self.make_app(self.broker, topics, self.books).start() as running:
            try:
                rate = await self._work(running, topics)
            except PyStreamError:
                await running.shutdown()  # raises what the service failed with, if that is why
                raise

            await running.shutdown()

        return self._report(rate, time.monotonic() - started)

    async def _work(self, running: RunningApp, topics: Topics) -> float:
        """Both phases; returns the rate of the first."""
        producer = Producer(running.publisher(), topics, self.sent, lambda: self.stopped_at is not None)
        started = time.monotonic()
        await self._phase(producer, self.plan.bulk_of, running)
        rate = len(self.books.handled) / max(self.books.last_activity - started, 0.001)
        await self._phase(producer, self.plan.timed_of, running)
        return rate

    async def _phase(self, producer: Producer, messages: Messages, running: RunningApp) -> None:
        await producer.publish(messages)
        published = time.monotonic()
        while running.health.state in _WORKING and self.books.missing(self.sent):
            now = time.monotonic()
            if now - max(published, self.books.last_activity) > self.patience:
                return

            if self.stopped_at is not None and now - self.stopped_at > self.stop_within:
                self._cut = True
                return

            await anyio.sleep(_LOOK_EVERY)

    def _report(self, rate: float, seconds: float) -> Report:
        books, missing = self.books, self.books.missing(self.sent)
        return Report(
            server=self.broker.describe(),
            published=self.sent.count,
            handled=len(books.handled),
            replied=len(books.replied),
            retried=books.retried,
            dropped=books.dropped,
            lost=0 if self._cut else missing,
            left=missing if self._cut else 0,
            duplicates=books.duplicates,
            order_violations=books.order_violations,
            rate=round(rate, 1),
            p50_ms=_milliseconds(percentile(books.latencies, 0.5)),
            p99_ms=_milliseconds(percentile(books.latencies, 0.99)),
            seconds=round(seconds, 1),
        )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
