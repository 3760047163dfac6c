"""Batches in `TestApp`: when they are closed, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import BaseModel
from pystream import (
    BatchContext,
    FailurePolicy,
    Outcome,
    PyStream,
    ack,
    dead_letter,
    drop,
    mount,
    retry,
    retry_after,
)
from pystream.errors import ConfigurationError, DecodeError
from pystream.memory import MemoryBroker
from pystream_pulsar import PulsarBroker, PulsarSubscription, SubscriptionType
from pystream_testing import BatchCall, Call, Mixed, Raised, TestApp, Unsettled
from pystream_testing.records import ANY

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    id: int


async def confirm(orders: list[Order]) -> None: ...


def app(handler: Any = confirm, **settings: Any) -> PyStream:
    return PyStream("shop").with_broker(MemoryBroker(), mount(handler, "orders", **{"batch": 4} | settings))


async def publish(t: TestApp, *numbers: int) -> None:
    for number in numbers:
        await t.broker().publish("orders", Order(id=number), wait=False)


class TestDriving:
    """When a batch is closed."""

    @pytest.mark.promise("BATCH-35")
    async def test_one_publish_makes_a_batch_of_one(self) -> None:
        """A publish that waits for its reaction closes the batch it is in; no time passes for that."""
        async with TestApp.start(app()) as t:
            before = t.clock.now()
            await t.broker().publish("orders", Order(id=1))
            await t.broker().publish("orders", Order(id=2))
            assert t.subscriber(confirm).batches == [[Order(id=1)], [Order(id=2)]]
            assert t.clock.now() == before

    @pytest.mark.promise("BATCH-35")
    @pytest.mark.parametrize(("count", "sizes"), [(3, [3]), (4, [4]), (5, [4, 1]), (8, [4, 4])])
    @pytest.mark.parametrize("form", [{}, {"workers": 2}, {"threads": 2}])
    @pytest.mark.parametrize("make", [MemoryBroker, partial(PulsarBroker, "pulsar://localhost")])
    async def test_several_make_a_longer_one(
        self, count: int, sizes: list[int], form: dict[str, Any], make: Callable[[], Any]
    ) -> None:
        """Several publishes without a wait, then `settle()`: as few batches as there can be, on every form."""
        source = "orders" if make is MemoryBroker else PulsarSubscription("orders", "billing")
        shop = PyStream("shop").with_broker(make(), mount(confirm, source, batch=4, **form))
        async with TestApp.start(shop) as t:
            await publish(t, *range(count))
            await t.settle()
            assert t.subscriber(confirm).sizes == sizes
            assert sorted(order.id for batch in t.subscriber(confirm).batches for order in batch) == [*range(count)]

    @pytest.mark.promise("BATCH-35")
    async def test_time_does_what_it_does_in_production(self) -> None:
        """A handler that feeds another in batches is driven to its end, and a retried delivery comes at its time."""
        seen: list[list[int]] = []

        async def split(orders: list[Order]) -> list[int]:
            return [order.id for order in orders for _ in range(3)]

        async def collect(numbers: list[int], ctx: BatchContext) -> list[Outcome]:
            seen.append(numbers)
            return [
                retry_after(5) if context.attempt == 1 and not n else ack()
                for n, context in zip(numbers, ctx.contexts, strict=True)
            ]

        shop = PyStream("shop").with_broker(
            MemoryBroker(),
            mount(split, "orders", batch=4, reply_to="numbers"),
            mount(collect, "numbers", batch=2),
        )
        async with TestApp.start(shop) as t:
            await publish(t, 1, 0)
            await t.settle()
            assert seen == [[1, 1], [1, 0], [0, 0]]
            await t.advance(4)
            assert len(seen) == 3
            await t.advance(1)
            assert sorted(number for batch in seen[3:] for number in batch) == [0, 0, 0]

    @pytest.mark.promise("BATCH-35")
    async def test_the_end_handles_an_open_batch(self) -> None:
        """A batch that is open when the block ends is handled in the stop."""
        async with TestApp.start(app()) as t:
            await publish(t, 1, 2)
            with anyio.fail_after(10):
                while t._harnessed.filling < 2:
                    await checkpoint()

        assert t.subscriber(confirm).batches == [[Order(id=1), Order(id=2)]]

    @pytest.mark.promise("BATCH-35")
    async def test_a_run_in_place_waits_for_its_time(self) -> None:
        """A batch that is run again in place does so when the clock says."""
        sizes: list[int] = []

        async def handler(orders: list[Order]) -> list[Outcome]:
            sizes.append(len(orders))
            return [ack() if len(sizes) > 1 or order.id else retry_after(3) for order in orders]

        source = PulsarSubscription("orders", "billing", type=SubscriptionType.EXCLUSIVE)
        shop = PyStream("shop").with_broker(PulsarBroker("pulsar://localhost"), mount(handler, source, batch=4))
        async with TestApp.start(shop) as t:
            await publish(t, 0, 1)
            await t.settle()
            assert t.subscriber(handler).outcomes == [Mixed((retry_after(3), ack()))]
            await t.advance(3)
            assert sizes == [2, 1]
            assert t.subscriber(handler).outcomes == [Mixed((retry_after(3), ack())), ack()]
            assert t.subscriber(handler).batches == [[Order(id=0), Order(id=1)], [Order(id=0)]]


class TestRecords:
    """What is recorded."""

    @pytest.mark.promise("BATCH-36")
    async def test_a_batch_is_one_call(self) -> None:
        """A batch is one call, whose value is the list; payloads, headers and keys are those of each delivery."""
        async with TestApp.start(app()) as t:
            await t.broker().publish("orders", Order(id=1), key="a", headers={"x": "1"}, wait=False)
            await t.broker().publish("orders", Order(id=2), key="b", headers={"x": "2"})
            records = t.subscriber(confirm)
            records.assert_called_once(with_=[Order(id=1), Order(id=2)])
            records.assert_settled(ack())
            records.assert_settled([ack(), ack()])
            assert records.values == [[Order(id=1), Order(id=2)]]
            assert records.payloads == [b'{"id":1}', b'{"id":2}']
            assert [headers["x"] for headers in records.headers] == [b"1", b"2"]
            assert records.keys == ["a", "b"]
            assert records.outcomes == [ack()]
            assert records.settlements == [ack(), ack()]

    @pytest.mark.promise("BATCH-36")
    async def test_each_delivery_has_its_settlement(self) -> None:
        """What became of each delivery is told, and `assert_settled` takes one outcome for each."""

        async def handler(orders: list[Order]) -> list[Outcome]:
            return [ack(), drop(), retry_after(9).and_after(print, "never seen here")]

        async with TestApp.start(app(handler)) as t:
            await publish(t, 1, 2, 3)
            await t.settle()
            records = t.subscriber(handler)
            records.assert_settled([ack(), drop(), retry_after(9)])
            assert records.outcomes == [Mixed((ack(), drop(), retry_after(9)))]
            assert records.settlements == [ack(), drop(), retry_after(9)]
            with pytest.raises(
                AssertionError, match=r"settled with \[ack\(\), ack\(\), ack\(\)\]; it was settled with ack"
            ):
                records.assert_settled([ack(), ack(), ack()])

            with pytest.raises(AssertionError, match="settled with ack"):
                records.assert_settled(ack())

            (call,) = records.calls
            assert isinstance(call, BatchCall)
            assert call.size == 3
            assert [part.value for part in call.deliveries] == [Order(id=1), Order(id=2), Order(id=3)]
            with pytest.raises(ConfigurationError, match="got a batch of 3; look at its deliveries"):
                _ = call.payload

    @pytest.mark.promise("BATCH-36")
    async def test_an_unreadable_delivery_is_a_call_of_its_own(self) -> None:
        """A delivery of a batch that cannot be read counts as a call, beside that of the others."""
        async with TestApp.start(app()) as t:
            await publish(t, 1)
            await t.broker().publish("orders", b"{", wait=False)
            await publish(t, 2)
            await t.settle()
            records = t.subscriber(confirm)
            unreadable, batch = records.calls
            assert type(unreadable) is Call
            assert unreadable.value is ANY
            assert isinstance(unreadable.error, DecodeError)
            assert unreadable.settled == drop()
            assert batch.value == [Order(id=1), Order(id=2)]
            assert records.sizes == [2]

    @pytest.mark.promise("BATCH-36")
    async def test_a_raise_is_told_once(self) -> None:
        """What a handler of batches raised is one exception, and the outcome is that of the policy."""

        async def handler(orders: list[Order]) -> None:
            raise ValueError("no")

        shop = app(handler, on_failure=FailurePolicy(error=drop()))
        async with TestApp.start(shop) as t:
            await publish(t, 1, 2)
            await t.settle()
            records = t.subscriber(handler)
            assert [str(error) for error in records.exceptions] == ["no"]
            (outcome,) = records.outcomes
            assert isinstance(outcome, Raised)
            assert outcome.outcome == drop()
            records.assert_settled(ValueError)

    @pytest.mark.promise("BATCH-36")
    async def test_a_callback_gets_each_call_once(self) -> None:
        """`on_call` is called once for a batch and once for an unreadable delivery, after their settlements."""
        async with TestApp.start(app()) as t:
            told: list[Any] = []

            @t.on_call
            def note(call: Call) -> None:
                told.append((call.value, call.settled))

            await t.broker().publish("orders", b"{", wait=False)
            await publish(t, 1, 2)
            await t.settle()
            assert told == [(ANY, drop()), ([Order(id=1), Order(id=2)], ack())]

    @pytest.mark.promise("BATCH-36")
    async def test_what_is_left_unsettled_is_told(self) -> None:
        """A batch that a fail-fast leaves unsettled is one call without an outcome."""

        async def handler(orders: list[Order]) -> None:
            raise ValueError("no")

        shop = app(handler, on_failure=FailurePolicy.strict())
        async with TestApp.start(shop) as t:
            await publish(t, 1, 2)
            await t.settle()
            assert t.run_result is not None

        (call,) = t.subscriber(handler).calls
        assert isinstance(call.outcome, Raised)
        assert t.subscriber(handler).settlements == [None, None]

    @pytest.mark.promise("BATCH-32")
    @pytest.mark.parametrize("raises", [False, True])
    async def test_case_c04_over_the_memory_broker(self, raises: bool) -> None:
        """A bad message alone in a batch becomes one dead letter, and nothing more happens in the next seconds."""

        async def handler(orders: list[Order]) -> list[Outcome]:
            if raises:
                raise ValueError("bad")

            return [dead_letter("bad")]

        shop = app(handler, batch=8, dead_letter="dead", max_attempts=2)
        async with TestApp.start(shop) as t:
            await t.broker().publish("orders", Order(id=1))
            await t.advance(3)
            calls = 2 if raises else 1
            assert len(t.subscriber(handler)) == calls
            t.published(Order, "dead").assert_called_once(Order(id=1))
            await t.advance(60)
            assert len(t.subscriber(handler)) == calls
            t.published(Order, "dead").assert_called_once(Order(id=1))

    @pytest.mark.promise("BATCH-32")
    async def test_case_c04_where_the_last_one_fails(self) -> None:
        """Of three in a batch the last alone becomes a dead letter, once."""

        async def handler(orders: list[Order]) -> list[Outcome]:
            return [ack(), ack(), dead_letter("bad")]

        async with TestApp.start(app(handler, batch=8, dead_letter="dead")) as t:
            await publish(t, 1, 2, 3)
            await t.advance(3)
            t.subscriber(handler).assert_called_once()
            t.published(Order, "dead").assert_called_once(Order(id=3))


@pytest.mark.promise("BATCH-36")
async def test_the_repr_shows_the_batch() -> None:
    """A failed assertion shows the payloads of a batch and what became of them."""

    async def handler(orders: list[int]) -> Outcome:
        return retry() if len(orders) > 3 else drop()

    async with TestApp.start(app(handler)) as t:
        for number in (1, 2):
            await t.broker().publish("orders", number, wait=False)

        await t.settle()
        assert repr(t.subscriber(handler).calls[0]) == "[1, 2] -> drop()"
        assert Unsettled() not in t.subscriber(handler).outcomes
