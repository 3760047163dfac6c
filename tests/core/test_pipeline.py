"""The whole way of a delivery through a running service, over the memory broker and over a scripted one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pystream import (
    FAIL_FAST,
    Context,
    FailurePolicy,
    Out,
    Outcome,
    PyStream,
    Router,
    ServiceFailed,
    ServiceState,
    State,
    by_key,
    drop,
    mount,
    retry,
    retry_after,
    subscriber,
)
from pystream.memory import MemoryBroker

from tests.core.scripted import ScriptedBroker, ScriptedDelivery

pytestmark = pytest.mark.anyio

_FORMS = [pytest.param(1, id="default"), pytest.param(3, id="workers"), pytest.param(by_key(2), id="lanes")]


class Order(BaseModel):
    id: int


class Confirmed(BaseModel):
    order_id: int


class Count:
    """Calls of a handler, and a way to wait for them."""

    def __init__(self, wanted: int) -> None:
        self.seen: list[Any] = []
        self._wanted = wanted
        self.reached = anyio.Event()

    def add(self, value: Any) -> None:
        self.seen.append(value)
        if len(self.seen) >= self._wanted:
            self.reached.set()

    async def wait(self) -> None:
        with anyio.fail_after(10):
            await self.reached.wait()


@pytest.mark.promise("SETTLE-2", "SETTLE-5", "HANDLER-3")
@pytest.mark.parametrize("workers", _FORMS)
async def test_a_service_handles_replies_and_retries(workers: Any) -> None:
    """Orders come in, confirmations go out, a retried order comes back with its count, a dropped one does not."""
    confirmed, attempts, dropped = Count(3), list[tuple[int, int]](), list[int]()

    @subscriber("orders", reply_to="confirmed", workers=workers)
    async def confirm(order: Order, context: Context, limit: State[int]) -> Confirmed | Outcome:
        attempts.append((order.id, context.attempt))
        if order.id > limit:
            dropped.append(order.id)
            return drop()

        if order.id == 2 and context.attempt == 1:
            return retry()

        if order.id == 3 and context.attempt < 3:
            return retry_after(0)

        return Confirmed(order_id=order.id)

    @subscriber("confirmed")
    async def collect(confirmation: Confirmed) -> None:
        confirmed.add(confirmation.order_id)

    broker = MemoryBroker()
    app = PyStream("shop", state=10).with_broker(broker, confirm, Router().include(collect))
    async with app.start() as running:
        orders: Out[Order] = running.publisher()
        for number in (1, 2, 3, 11):
            await orders.publish(Order(id=number), "orders", key=str(number))

        await confirmed.wait()
        await running.shutdown()

    assert sorted(confirmed.seen) == [1, 2, 3]
    assert sorted(attempts) == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (11, 1)]
    assert dropped == [11]
    assert broker.stored("orders") == broker.stored("confirmed") == 0
    assert running.health.state is ServiceState.STOPPED


@pytest.mark.promise("RETRY-4", "DISPATCH-6")
@pytest.mark.parametrize("workers", _FORMS)
async def test_fail_fast_stops_the_service_and_loses_nothing(workers: Any) -> None:
    """ServiceFailed names the subscription and the cause; the failed delivery is there at the next start."""
    good = Count(1)

    @subscriber("orders", workers=workers)
    async def fragile(order: Order) -> None:
        if good.seen or order.id != 7:
            return good.add(order.id)

        raise ValueError("broken")

    broker = MemoryBroker()
    app = PyStream("shop", on_failure=FailurePolicy.strict()).with_broker(broker, fragile)
    async with app.start() as running:
        await running.publisher().publish(Order(id=7), "orders")
        with anyio.fail_after(10):
            await running.stopping()

        with pytest.raises(ServiceFailed, match=r"^orders failed \(handler\): ValueError: broken$") as caught:
            await running.shutdown()

    assert (caught.value.step, caught.value.subscription) == ("handler", "orders")
    assert isinstance(caught.value.__cause__, ValueError)
    assert running.health.state is ServiceState.FAILED
    good.seen.append("mended")
    async with app.start() as running:
        await good.wait()

    assert good.seen == ["mended", 7]
    assert broker.stored("orders") == 0


@pytest.mark.promise("RETRY-2")
async def test_the_innermost_policy_decides_in_a_running_service() -> None:
    """A mount's own policy goes before the router's, and the router's before the app's."""
    handled = Count(3)

    def judged_by(name: str) -> FailurePolicy:
        def judge(error: Exception, attempt: int) -> Outcome:
            handled.add((str(error), name))
            return drop()

        return FailurePolicy(error=judge)

    async def fail(order: Order) -> None:
        raise ValueError(order.id)

    router = Router(on_failure=judged_by("router"))
    router.include(mount(fail, "b"), mount(fail, "c", on_failure=judged_by("mount")))
    app = PyStream("shop", on_failure=judged_by("app")).with_broker(MemoryBroker(), mount(fail, "a"), router)
    async with app.start() as running:
        for number, name in enumerate("abc"):
            await running.publisher().publish(Order(id=number), name)

        await handled.wait()

    assert sorted(handled.seen) == [("0", "app"), ("1", "router"), ("2", "mount")]


@pytest.mark.promise("SETTLE-6")
async def test_health_counts_failed_settlements() -> None:
    """A running service shows how many settlements have failed, and stays RUNNING."""

    async def handler(body: bytes) -> None: ...

    broker = ScriptedBroker()
    broker.stream().feed(*(ScriptedDelivery(str(n), refusal=RuntimeError("no")) for n in range(3)))
    async with PyStream("shop").with_broker(broker, mount(handler, "orders")).start() as running:
        await broker.journal.until(lambda: broker.stream().ends == 3)
        assert running.health.settlement_failures == 3
        assert running.health.state is ServiceState.RUNNING


@pytest.mark.promise("SETTLE-9")
@pytest.mark.parametrize("workers", _FORMS)
async def test_a_loop_that_somebody_cancels_is_not_silent(anyio_backend: Any, workers: Any) -> None:
    """A task cancelled from outside any scope of ours stops the service with an error; nothing is lost."""
    if anyio_backend[0] == "trio":
        pytest.skip("trio's cancellations cannot be made but by a cancelled scope")

    import asyncio

    async def handler(body: bytes) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep_forever()

    broker = ScriptedBroker()
    broker.stream().feed(ScriptedDelivery("1", key="a"))
    async with PyStream("shop").with_broker(broker, mount(handler, "orders", workers=workers)).start() as running:
        with anyio.fail_after(10):
            await running.stopping()

        with pytest.raises(ServiceFailed) as caught:
            await running.shutdown()

    assert (caught.value.step, caught.value.subscription) == ("loop", "orders")
    assert broker.journal.lines == ["release 1", "close orders", "close broker"]


@pytest.mark.promise("SETTLE-9")
async def test_a_waiting_loop_that_somebody_cancels_is_not_silent(anyio_backend: Any) -> None:
    """A loop cancelled while it waits for the stream is a failure, too."""
    if anyio_backend[0] == "trio":
        pytest.skip("trio's cancellations cannot be made but by a cancelled scope")

    import asyncio

    async def handler(body: bytes) -> None: ...

    broker = ScriptedBroker()
    async with PyStream("shop").with_broker(broker, mount(handler, "orders")).start() as running:
        while not broker.stream().waiters:
            await anyio.lowlevel.checkpoint()

        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "pystream orders"]
        task.cancel()
        with anyio.fail_after(10):
            await running.stopping()

        with pytest.raises(ServiceFailed) as caught:
            await running.shutdown()

    assert (caught.value.step, caught.value.subscription) == ("loop", "orders")


@pytest.mark.promise("RETRY-4", "RETRY-5")
async def test_an_undecodable_delivery_may_stop_the_service() -> None:
    """With decode=FAIL_FAST the service fails, and the delivery does not come back."""

    @subscriber("orders", on_failure=FailurePolicy(decode=FAIL_FAST))
    async def handler(order: Order) -> None: ...

    broker = MemoryBroker()
    app = PyStream("shop").with_broker(broker, handler)
    async with app.start() as running:
        await running.publisher().publish(b"secret", "orders")
        with anyio.fail_after(10):
            await running.stopping()

        with pytest.raises(ServiceFailed) as caught:
            await running.shutdown()

    assert str(caught.value) == "orders failed (handler): the payload is not valid: the whole: json_invalid"
    assert broker.stored("orders") == 0
