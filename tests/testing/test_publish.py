"""`TestApp.publish` and its siblings: when a reaction is over."""

from __future__ import annotations

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pystream import Context, Out, Outcome, PyStream, ack, by_key, mount, retry, retry_after
from pystream.errors import BrokerClosed, ConfigurationError, PublishError
from pystream.memory import MemoryBroker
from pystream_testing import NotQuiescentError, TestApp

from tests.testing.shop import Confirmed, Order, confirm, receive, shop

pytestmark = pytest.mark.anyio


@pytest.mark.promise("TESTING-44")
async def test_publish_returns_after_the_whole_reaction() -> None:
    """A publish returns when the order was confirmed and the confirmation received."""
    async with TestApp.start(shop()) as t:
        for number in range(1, 30):
            await t.broker().publish("orders", Order(id=number))

            assert len(t.subscriber(confirm)) == len(t.subscriber(receive)) == number


@pytest.mark.promise("TESTING-44")
async def test_reaction_crosses_brokers() -> None:
    """A publish to one broker waits for what it has set off on another, also where handlers suspend."""
    first, second = MemoryBroker("first"), MemoryBroker("second")
    ended: list[int] = []

    async def relay(number: int) -> None:
        await anyio.sleep(0.005)
        await second_publisher.publish(number, "b")

    async def receive_it(number: int) -> None:
        await anyio.sleep(0.005)
        ended.append(number)

    app = PyStream("two").with_broker(first, mount(relay, "a", workers=3), label="one")
    app.with_broker(second, mount(receive_it, "b", workers=by_key(2)), label="two")
    second_publisher: Out[int] = Out(second.publisher())  # of the broker itself: the harness does not see it
    async with TestApp.start(app) as t:
        for number in range(10):
            await t.broker("one").publish("a", number)

            assert ended[-1] == number


@pytest.mark.promise("TESTING-44")
async def test_requeue_is_part_of_the_reaction() -> None:
    """What is given back to come again at once has come again when the publish returns."""
    async with TestApp.start(shop()) as t:
        await t.broker().publish("orders", Order(id=1, sku="again"))

        assert t.subscriber(confirm).outcomes == [retry(), retry(), retry(), ack()]


@pytest.mark.promise("TESTING-44")
async def test_burst_without_suspension_is_waited_for() -> None:
    """A hundred deliveries that one handler sets off are all handled, past the form's own checkpoints."""

    async def spread(count: int, out: Out[int]) -> None:
        for number in range(count):
            await out.publish(number, "parts")

    async def part(number: int) -> None:
        pass

    app = PyStream("spread").with_broker(MemoryBroker(), mount(spread, "whole"), mount(part, "parts"))
    async with TestApp.start(app) as t:
        await t.broker().publish("whole", 200)

        assert t.subscriber(part).values == list(range(200))


@pytest.mark.promise("TESTING-44")
async def test_publish_from_another_thread_is_part_of_the_reaction() -> None:
    """What a handler publishes from another thread's loop is handled when the publish returns."""

    async def relay(number: int, out: Out[int]) -> None:
        await anyio.to_thread.run_sync(lambda: anyio.run(out.publish, number, "b"))

    async def end(number: int) -> None:
        assert threading.current_thread() is here

    here = threading.current_thread()
    app = PyStream("threads").with_broker(MemoryBroker(), mount(relay, "a"), mount(end, "b"))
    async with TestApp.start(app) as t:
        await t.broker().publish("a", 1)

        assert t.subscriber(end).values == [1]


@pytest.mark.promise("TESTING-61")
async def test_settle_and_drain() -> None:
    """Without waiting a publish returns at once; `settle` waits for the reaction, `drain` also for continuations."""
    let_go, ended = anyio.Event(), anyio.Event()

    async def afterwards() -> None:
        await let_go.wait()
        ended.set()

    async def handle(number: int) -> Outcome:
        return ack().and_after(afterwards)

    app = PyStream("after").with_broker(MemoryBroker(), mount(handle, "numbers"))
    async with TestApp.start(app) as t:
        await t.broker().publish("numbers", 1, wait=False)
        assert len(t.subscriber(handle)) == 0

        await t.settle()
        assert len(t.subscriber(handle)) == 1
        assert not ended.is_set()

        let_go.set()
        await t.drain()
        assert ended.is_set()


@pytest.mark.promise("TESTING-61")
async def test_continuation_that_needs_no_time_is_part_of_the_reaction() -> None:
    """What a continuation does without waiting for anything is done, and what it publishes is handled."""

    async def afterwards(out: Out[int]) -> None:
        await checkpoint()
        await out.publish(1, "ends")

    async def handle(number: int, out: Out[int]) -> Outcome:
        return ack().and_after(afterwards, out)

    async def end(number: int) -> None:
        pass

    app = PyStream("after").with_broker(MemoryBroker(), mount(handle, "numbers"), mount(end, "ends"))
    async with TestApp.start(app) as t:
        await t.broker().publish("numbers", 1)

        t.subscriber(end).assert_called_once(1)


@pytest.mark.promise("TESTING-45")
async def test_continuation_asleep_on_the_clock_does_not_block() -> None:
    """A continuation that sleeps on virtual time neither blocks a publish nor goes on before its time."""
    woken: list[float] = []

    async def afterwards(t: TestApp) -> None:
        await t.clock.sleep(3)  # type: ignore[attr-defined]  # the clock of a run in process
        woken.append(t.clock.now())

    async def handle(number: int) -> Outcome:
        return ack().and_after(afterwards, t)

    app = PyStream("after").with_broker(MemoryBroker(), mount(handle, "numbers"))
    async with TestApp.start(app) as t:
        begun = t.clock.now()
        await t.broker().publish("numbers", 1)
        await t.advance(2.5)
        assert not woken

        await t.advance(1)
        assert woken == [begun + 3]


@pytest.mark.promise("TESTING-45")
async def test_time_stands_still_until_it_is_advanced() -> None:
    """A delayed retry comes when its time has come, at once by the wall clock, and not before."""
    async with TestApp.start(shop()) as t:
        await t.broker().publish("orders", Order(id=1, sku="later"))
        t.subscriber(confirm).assert_settled(retry_after(5))

        await t.advance(4.99)
        t.subscriber(confirm).assert_called_once()

        await t.advance(0.01)
        assert t.subscriber(confirm).outcomes == [retry_after(5), ack()]


@pytest.mark.promise("TESTING-45")
async def test_advance_goes_through_every_due_moment() -> None:
    """What becomes due on the way happens at its own time, in order, each reaction before the next moment."""
    seen: list[tuple[int, float]] = []

    async def handle(number: int, ctx: Context) -> Outcome:
        seen.append((number, t.clock.now() - begun))
        return retry_after(number) if ctx.attempt < 4 else ack()

    app = PyStream("later").with_broker(MemoryBroker(), mount(handle, "numbers"))
    async with TestApp.start(app) as t:
        begun = t.clock.now()
        await t.broker().publish("numbers", 2)
        await t.broker().publish("numbers", 3)
        seen.clear()
        await t.advance(10)

        assert seen == [(2, 2), (3, 3), (2, 4), (2, 6), (3, 6), (3, 9)] or seen == [
            (2, 2), (3, 3), (2, 4), (3, 6), (2, 6), (3, 9)
        ]  # fmt: skip
        assert t.clock.now() == begun + 10


@pytest.mark.promise("TESTING-46")
async def test_service_that_feeds_itself_is_found_out() -> None:
    """A reaction of more than 10,000 deliveries is an error that names the subscriptions."""
    with pytest.raises(NotQuiescentError, match=r"more than 10,000 deliveries .*orders: 10\d{3},"):
        async with TestApp.start(shop()) as t:
            await t.broker().publish("orders", Order(id=1, sku="loop"))


@pytest.mark.promise("TESTING-46")
async def test_handler_that_hangs_is_named() -> None:
    """A handler in which nothing happens for the timeout ends the wait, by the name of its subscription."""

    async def hang(number: int) -> None:
        await anyio.Event().wait()

    app = PyStream("hanging", shutdown_timeout=0).with_broker(MemoryBroker(), mount(hang, "numbers"))
    with pytest.raises(NotQuiescentError, match=r"nothing has happened for 0\.2 s.*numbers handles 1"):
        async with TestApp.start(app, timeout=0.2) as t:
            await t.broker().publish("numbers", 1)


@pytest.mark.promise("TESTING-46")
async def test_continuation_that_does_not_end_is_named() -> None:
    """A drain gives up after the timeout, and says which continuation runs."""

    async def sleeps_on() -> None:
        await anyio.Event().wait()

    async def handle(number: int) -> Outcome:
        return ack().and_after(sleeps_on)

    app = PyStream("hanging", shutdown_timeout=0).with_broker(MemoryBroker(), mount(handle, "numbers"))
    with pytest.raises(NotQuiescentError, match="sleeps_on"):
        async with TestApp.start(app, timeout=0.2) as t:
            await _publish_and_drain(t)


async def _publish_and_drain(t: TestApp) -> None:
    await t.broker().publish("numbers", 1)
    await t.drain()


@pytest.mark.promise("TESTING-47")
async def test_bytes_headers_and_key_arrive() -> None:
    """Raw bytes, headers and a key are published as they are given."""
    async with TestApp.start(shop()) as t:
        await t.broker(MemoryBroker).publish("orders", b'{"id": 7}', key="k", headers={"Note": "hello"})

        t.subscriber(confirm).assert_called_once(Order(id=7), headers={"note": b"hello"}, key="k")
        (call,) = t.subscriber(confirm).calls
        assert (call.payload, call.destination) == (b'{"id": 7}', "orders")


@pytest.mark.promise("TESTING-57")
async def test_value_that_cannot_be_encoded_fails_in_the_test_too() -> None:
    """Values are really encoded: one that has no JSON form is refused at the publish."""
    async with TestApp.start(shop()) as t:
        with pytest.raises(PublishError, match="cannot be encoded"):
            await t.broker().publish("orders", object())


@pytest.mark.promise("TESTING-50")
async def test_broker_that_is_not_told_is_refused() -> None:
    """Between two brokers, and for a broker that is not there, the error names those that are."""
    app = PyStream("two").with_broker(MemoryBroker("a"), label="eu").with_broker(MemoryBroker("b"), label="us")
    async with TestApp.start(app) as t:
        for wanted in (None, MemoryBroker, "asia", PyStream):
            with pytest.raises(ConfigurationError, match=r"eu \(memory://a\), us \(memory://b\)"):
                t.broker(wanted)

        assert t.broker("eu") is t.broker("eu")


@pytest.mark.promise("TESTING-52")
async def test_publish_after_the_stop_is_refused() -> None:
    """A publisher of a service that has stopped says so."""
    async with TestApp.start(shop()) as t:
        publisher = t.broker()
        assert t.running
        assert not t.shut_down
        await t.shutdown()

        assert not t.running
        assert t.shut_down
        with pytest.raises(BrokerClosed):
            await publisher.publish("orders", Order(id=1))


@pytest.mark.promise("TESTING-44")
async def test_concurrent_publishes_each_see_their_reaction() -> None:
    """Several publishes at once all return, each after its own reaction."""
    async with TestApp.start(shop()) as t:

        async def publish(number: int) -> None:
            await t.broker().publish("orders", Order(id=number))
            assert Confirmed(order_id=number) in t.subscriber(receive).values

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(publish, number)

        assert len(t.subscriber(receive)) == 20


@pytest.mark.promise("TESTING-45")
@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_time_does_not_go_back(seconds: float) -> None:
    """Advancing by less than nothing is refused."""
    async with TestApp.start(shop()) as t:
        with pytest.raises(ConfigurationError, match="advance"):
            await t.advance(seconds)
