"""`TestApp` from start to stop: the same steps as in production, failures, states, and live runs."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from pystream import (
    Context,
    FailurePolicy,
    Out,
    Outcome,
    PyStream,
    ServiceFailed,
    State,
    mount,
    retry_after,
    subscriber,
)
from pystream.errors import ConfigurationError
from pystream.memory import MemoryBroker
from pystream_pulsar import PulsarBroker, PulsarSubscription
from pystream_testing import ConnectedBrokers, NotQuiescentError, TestApp, VirtualClock

from tests.testing.counted import EXPECTED, Counted
from tests.testing.shop import Confirmed, Order, confirm, receive, shop

pytestmark = pytest.mark.anyio

_PATIENCE = 5.0


@pytest.mark.promise("TESTING-57")
@pytest.mark.parametrize("start", [TestApp.start, TestApp.start_live])
async def test_same_steps_as_in_production(start: Callable[..., AbstractAsyncContextManager[TestApp]]) -> None:
    """Hooks, codec calls and resources are those of `run()`, with the same arguments and in the same order."""
    counted = Counted()
    async with start(counted.app) as t:
        await t.broker().publish("items", b'{"id": 1}')

    assert counted.lines == EXPECTED.splitlines()


@pytest.mark.promise("TESTING-57")
def test_steps_of_production(anyio_backend: tuple[str, dict[str, bool]]) -> None:
    """What the runs of a test are compared with is what `run()` does."""
    name, options = anyio_backend
    counted = Counted(at_the_end=lambda: signal.raise_signal(signal.SIGTERM))

    async def publish(event: object) -> None:
        await counted.publish()

    counted.app.after_startup(publish)
    counted.app.run(backend="uvloop" if options.get("use_uvloop") else name)

    assert counted.lines == EXPECTED.splitlines()


@pytest.mark.promise("TESTING-51")
async def test_exception_of_the_body_shows_as_it_is() -> None:
    """What the body raises comes out itself, after the service was stopped in order: hooks run, state closed."""
    counted = Counted()
    with pytest.raises(KeyError) as raised:
        async with TestApp.start(counted.app) as t:
            raise KeyError("mine")

    assert raised.value.args == ("mine",)
    assert raised.value.__context__ is None
    assert t.shut_down
    assert counted.lines[-3:] == ["on_shutdown counted None", "after_shutdown counted None", "state closes"]


async def _break(t: TestApp, *, then: Exception | None = None) -> None:
    await t.broker().publish("orders", Order(id=1, sku="broken"))
    await t.shutdown()
    if then is not None:
        raise then


def _strict() -> PyStream:
    return PyStream("strict", on_failure=FailurePolicy.strict()).with_broker(MemoryBroker(), mount(confirm))


@pytest.mark.promise("TESTING-52")
async def test_failed_service_ends_the_reaction() -> None:
    """A fail-fast ends the publish once the service has stopped; `run_result` has the failure."""
    async with TestApp.start(_strict()) as t:
        await t.broker().publish("orders", Order(id=1, sku="broken"))

        assert t.shut_down
        assert t.run_result is not None
        assert "no such article" in str(t.run_result)
        (call,) = t.subscriber(confirm).calls
        assert call.settled is None


@pytest.mark.promise("TESTING-52")
async def test_failure_that_nobody_has_looked_at_is_raised() -> None:
    """A service that failed unseen fails the test at the end of the block, unless the body raised already."""
    with pytest.raises(ServiceFailed, match="no such article"):
        async with TestApp.start(_strict()) as t:
            await t.broker().publish("orders", Order(id=1, sku="broken"))

    with pytest.raises(ServiceFailed, match="no such article"):
        async with TestApp.start(_strict()) as t:
            await _break(t)

    with pytest.raises(AssertionError, match="mine"):
        async with TestApp.start(_strict()) as t:
            await _break(t, then=AssertionError("mine"))


@pytest.mark.promise("TESTING-52")
async def test_start_that_fails_is_raised() -> None:
    """A service that cannot start fails the test at once, with the step."""
    app = shop()

    @app.after_startup
    def refuse() -> None:
        raise ValueError("not today")

    with pytest.raises(ServiceFailed, match="not today"):
        async with TestApp.start(app):
            pytest.fail("it has started")


async def _read(number: int, state: State[Any]) -> None:
    """Leaves the state to be looked at."""
    state.append(number)


def _with_state() -> PyStream:
    return PyStream("shop", state="own").with_broker(MemoryBroker(), mount(_read, "numbers"))


@pytest.mark.promise("TESTING-41")
async def test_state_in_place_of_the_apps_own() -> None:
    """A test gives a state as a value, or in any form that an app takes."""
    lists: list[list[int]] = [[], [], []]

    @asynccontextmanager
    async def opened() -> AsyncIterator[list[int]]:
        yield lists[2]

    for state in (lists[0], lambda: lists[1], opened):
        async with TestApp.start(_with_state(), state=state) as t:
            await t.broker().publish("numbers", 1)

    assert lists == [[1], [1], [1]]


class Relay:
    def __init__(self, brokers: ConnectedBrokers) -> None:
        assert len(brokers) == 1
        assert brokers[MemoryBroker] is brokers.get()
        self.out: Out[int] = Out(brokers[MemoryBroker].publisher())


@pytest.mark.promise("TESTING-42")
@pytest.mark.parametrize("how", ["function", "coroutine", "generator"])
@pytest.mark.parametrize("start", [TestApp.start, TestApp.start_live])
async def test_state_that_sees_the_connected_brokers(
    how: str, start: Callable[..., AbstractAsyncContextManager[TestApp]]
) -> None:
    """A function of one argument gets the connected brokers, by class or label, and makes the state."""

    async def coroutine(brokers: ConnectedBrokers) -> Relay:
        return Relay(brokers)

    async def generator(brokers: ConnectedBrokers) -> AsyncIterator[Relay]:
        yield Relay(brokers)

    async def relay(number: int, state: State[Relay]) -> None:
        await state.out.publish(number, "b")

    async def end(number: int) -> None:
        pass

    state = {"function": Relay, "coroutine": coroutine, "generator": generator}[how]
    app = PyStream("relay", state="own").with_broker(MemoryBroker(), mount(relay, "a"), mount(end, "b"))
    async with start(app, state=state) as t:
        await t.broker().publish("a", 1)
        t.subscriber(end).assert_called_once(1)
        t.published(int, "b").assert_called_once(1)


@pytest.mark.promise("TESTING-54")
async def test_live_run_waits_for_what_is_owed() -> None:
    """The same body runs on a real clock: a publish waits for its reaction, `advance` really sleeps."""

    @subscriber("orders", reply_to="orders.confirmed")
    async def slowly(order: Order, ctx: Context) -> Confirmed | Outcome:
        await anyio.sleep(0.01)
        return retry_after(0.05) if ctx.attempt == 1 else Confirmed(order_id=order.id)

    app = PyStream("live").with_broker(MemoryBroker(), slowly, mount(receive))
    async with TestApp.start_live(app) as t:
        await t.broker().publish("orders", Order(id=1))
        t.subscriber(slowly).assert_settled(retry_after(0.05))
        t.subscriber(receive).assert_not_called()
        await t.advance(0.06)
        t.subscriber(receive).assert_called_once(Confirmed(order_id=1))
        await t.drain()


async def _publish_three(t: TestApp) -> None:
    for number in (1, 2, 3):
        await t.broker().publish("orders", Order(id=number))


@pytest.mark.promise("TESTING-54")
async def test_live_run_says_what_is_missing() -> None:
    """A live wait that runs out names the subscription, and the counts handled and expected."""

    async def hang(order: Order) -> None:
        if order.id == 3:
            await anyio.Event().wait()

    app = PyStream("live", shutdown_timeout=0).with_broker(MemoryBroker(), mount(hang, "orders", workers=2))
    with pytest.raises(NotQuiescentError, match=r"after 0\.2 s: orders: 2 of 3 deliveries handled; orders handles 1"):
        async with TestApp.start_live(app, timeout=0.2) as t:
            await _publish_three(t)


@pytest.mark.promise("TESTING-54")
async def test_live_run_is_not_misled_by_a_backlog() -> None:
    """What a broker still held from before counts for nothing: the publish waits for its own message."""
    broker = MemoryBroker()

    async def handle(number: int) -> None:
        await anyio.sleep(0.005)

    app = PyStream("live").with_broker(broker, mount(handle, "numbers"))
    async with app.start():
        pass  # so that the subscription is there

    async with PyStream("other").with_broker(broker).start() as running:
        for number in range(5):
            await running.publisher().publish(number, "numbers")

    async with TestApp.start_live(app) as t:
        await t.broker().publish("numbers", 7)
        assert t.subscriber(handle).values == [0, 1, 2, 3, 4, 7]


@pytest.mark.promise("TESTING-54")
async def test_live_run_on_a_virtual_clock_is_refused() -> None:
    """A server keeps its own time, so a virtual clock in a live run is an error."""
    with pytest.raises(ConfigurationError, match="VirtualClock"):
        TestApp.start_live(shop(), clock=VirtualClock())

    for start in (TestApp.start, TestApp.start_live):
        with pytest.raises(ConfigurationError, match="timeout=0"):
            start(shop(), timeout=0)


def _pulsar() -> PyStream:
    return PyStream("shop").with_broker(
        PulsarBroker("pulsar://localhost:6650"),
        mount(_confirm, PulsarSubscription("orders", "billing"), reply_to="orders.confirmed"),
        mount(_receive, PulsarSubscription("orders.confirmed", "billing"), workers=4),
    )


async def _confirm(order: Order, ctx: Context, out: Out[Order]) -> Confirmed | Outcome:
    return await confirm(order, ctx, None, out)


async def _receive(confirmed: Confirmed) -> None:
    await receive(confirmed)


@pytest.mark.promise("TESTING-60")
async def test_pulsar_in_process() -> None:
    """A service on Pulsar is tested without a server: replies, delays, redeliveries and full names are Pulsar's."""
    async with TestApp.start(_pulsar()) as t:
        await t.broker(PulsarBroker).publish("orders", Order(id=1))
        t.subscriber(_receive).assert_called_once(Confirmed(order_id=1))
        t.published(Confirmed, "persistent://public/default/orders.confirmed").assert_called_once()

        await t.broker().publish("persistent://public/default/orders", Order(id=2, sku="later"))
        t.subscriber(_confirm).assert_settled(retry_after(5))
        await t.advance(4.9)
        t.subscriber(_receive).assert_called_once()
        await t.advance(0.1)  # and the pause that the client itself makes before it asks for the message
        t.subscriber(_receive).assert_called(times=2)


@pytest.mark.promise("TESTING-60")
async def test_pulsar_takes_its_own_time_for_a_redelivery() -> None:
    """What is given back at once comes back within the publish, the clock moved by the broker's own pace."""
    async with TestApp.start(_pulsar()) as t:
        begun = t.clock.now()
        for number in range(3):
            await t.broker().publish("orders", Order(id=number, sku="again"))

        t.subscriber(_confirm).assert_called(times=12)
        assert 0 < t.clock.now() - begun < 3


@pytest.mark.promise("TESTING-60")
async def test_pulsar_handlers_of_one_subscription_share_its_messages() -> None:
    """Of two handlers on one subscription one gets a message, in whatever mode the wait is made."""
    one = PulsarSubscription("numbers", "shared")
    app = PyStream("pair").with_broker(
        PulsarBroker("pulsar://localhost:6650"), mount(_first, one, name="first"), mount(_second, one, name="second")
    )
    async with TestApp.start(app) as t:
        for number in range(10):
            await t.broker().publish("numbers", number)

        assert sorted([*t.subscriber(_first).values, *t.subscriber(_second).values]) == list(range(10))


async def _first(number: int) -> None:
    """One of two."""


async def _second(number: int) -> None:
    """The other."""


class _Foreign(MemoryBroker):
    """A broker of which no transport is known."""

    def __init__(self) -> None:
        super().__init__("x")

    def describe(self) -> str:
        return "foreign://x"


@pytest.mark.promise("TESTING-59")
async def test_broker_without_a_transport_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that nobody can connect in process fails the start, naming its class and the way out."""
    from pystream_testing import _transports

    monkeypatch.setattr(_transports, "MemoryBroker", PulsarBroker)
    with pytest.raises(ServiceFailed, match=r"tests\.testing\.test_app:_Foreign .*TestApp\.start_live"):
        async with TestApp.start(PyStream("shop").with_broker(_Foreign())):
            pytest.fail("it has started")


@pytest.mark.promise("TESTING-44")
async def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """A service that was tested logs no warning at its end, and can be tested again on a fresh record."""
    app = shop()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            async with TestApp.start(app) as t:
                await t.broker().publish("orders", Order(id=1, sku="later"))
                t.subscriber(confirm).assert_called()

    assert not caplog.records
