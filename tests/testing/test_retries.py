"""What a test sees of dead letters, copies, and deliveries that the runtime holds for a delay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import pytest
from pystream import Outcome, PyStream, ServiceState, ack, dead_letter, drop, mount, retry, retry_after
from pystream.errors import SettlementUnsupported
from pystream.headers import DEAD_LETTER_REASON
from pystream.memory import MemoryBroker
from pystream.protocols import Clock
from pystream_testing import TestApp
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddConnection,
    OddDelivery,
    OddSubscriber,
    PlainDelivery,
)

pytestmark = pytest.mark.anyio


class _Subscriber(OddSubscriber):
    @property
    def ready(self) -> bool:
        return self.inner.ready


class _Odd(OddBroker):
    subscriber_type = _Subscriber


class Odd(MemoryBroker):
    """A memory broker with odd deliveries; in process as it is."""

    delivery: ClassVar[type[PlainDelivery]]

    async def connect(self, clock: Clock) -> Any:
        odd = _Odd()
        odd.delivery_type = self.delivery  # type: ignore[misc]  # of this one object
        return OddConnection(await super().connect(clock), odd, clock)


class _Uncounted(OddDelivery):
    delivery_count: None = None


class _NoRequeue(_Uncounted):
    async def requeue(self) -> None:
        raise SettlementUnsupported("no such thing")


class NoDelay(Odd):
    delivery = PlainDelivery


class NoCounts(Odd):
    delivery = _Uncounted


class NoRequeue(Odd):
    delivery = _NoRequeue


def _app(broker: MemoryBroker, handler: Callable[..., Any], **settings: Any) -> PyStream:
    return PyStream("shop").with_broker(broker, mount(handler, "orders", **settings))


def _later() -> Callable[..., Any]:
    runs: list[bytes] = []

    async def handler(body: bytes) -> Outcome:
        runs.append(body)
        return retry_after(5) if len(runs) == 1 else ack()

    return handler


@pytest.mark.promise("RETRY-43")
@pytest.mark.parametrize("make", [MemoryBroker, NoDelay, NoCounts], ids=lambda make: make.__name__)
async def test_a_held_delivery_waits_for_the_tests_clock(make: type[MemoryBroker]) -> None:
    """Whoever holds it, a delayed delivery does not keep a publish waiting, and comes back when time has passed."""
    handler = _later()
    async with TestApp.start(_app(make(), handler)) as test:
        records = test.subscriber(handler)
        await test.broker().publish("orders", b"1")
        await test.drain()
        assert records.outcomes == [retry_after(5)]
        await test.advance(4.9)
        assert records.outcomes == [retry_after(5)]
        await test.advance(0.1)
        assert records.outcomes == [retry_after(5), ack()]


@pytest.mark.promise("RETRY-43")
@pytest.mark.parametrize("make", [MemoryBroker, NoDelay, NoCounts, NoRequeue], ids=lambda make: make.__name__)
async def test_a_spent_delivery_is_recorded_as_what_became_of_it(make: type[MemoryBroker]) -> None:
    """One reaction goes through every attempt, and the last one is recorded as a dead letter."""

    async def handler(body: bytes) -> Outcome:
        return retry()

    async with TestApp.start(_app(make(), handler, max_attempts=3, dead_letter="dead")) as test:
        test.published(bytes, "dead").assert_not_called()
        await test.broker().publish("orders", b"1")
        records = test.subscriber(handler)
        spent = dead_letter("given up at attempt 3 (max_attempts=3)")
        assert records.outcomes == [retry(), retry(), spent]
        records.assert_settled(spent)
        test.published(bytes, "dead").assert_called_once(
            b"1", headers={DEAD_LETTER_REASON: "given up at attempt 3 (max_attempts=3)"}
        )


@pytest.mark.promise("RETRY-43")
async def test_a_delivery_that_is_rejected_at_the_cap_is_recorded_as_dropped() -> None:
    """Without dead letters the record of the last attempt says so."""

    async def handler(body: bytes) -> Outcome:
        return retry_after(1)

    async with TestApp.start(_app(NoDelay(), handler, max_attempts=2)) as test:
        await test.broker().publish("orders", b"1")
        await test.advance(1)
        test.subscriber(handler).assert_settled(drop())
        assert test.subscriber(handler).outcomes == [retry_after(1), drop()]


@pytest.mark.promise("RETRY-43")
async def test_a_block_ends_while_a_delivery_is_held() -> None:
    """Time stands still at the end of a test, and what is held then is given back; the test does not hang."""
    handler = _later()
    with anyio.fail_after(5):
        async with TestApp.start(_app(NoDelay(), handler)) as test:
            await test.broker().publish("orders", b"1")

    assert test.run_result is None
    assert test.subscriber(handler).outcomes == [retry_after(5)]


@pytest.mark.promise("RETRY-43", "RETRY-41")
@pytest.mark.parametrize("make", [MemoryBroker, NoDelay], ids=lambda make: make.__name__)
async def test_a_full_bound_keeps_no_reaction_waiting(make: type[MemoryBroker]) -> None:
    """While as many are held as may be, what is published is not taken and the test goes on; then it is handled."""
    seen: list[bytes] = []

    async def handler(body: bytes) -> Outcome:
        seen.append(body)
        return retry_after(5) if len(seen) <= 2 else ack()

    async with TestApp.start(_app(make(), handler, max_delayed=2)) as test:
        for body in (b"1", b"2", b"3"):
            await test.broker().publish("orders", body)

        assert seen == [b"1", b"2"]
        assert test.app.health.state is ServiceState.DEGRADED
        await test.advance(4.9)
        assert seen == [b"1", b"2"]
        await test.advance(0.3)
        assert sorted(seen) == [b"1", b"1", b"2", b"2", b"3"]
        assert test.app.health.state.value == "running"
