"""Threads in a whole service over the memory broker: the drain law, the budget of a stop, liveness, the harness."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Any, ClassVar, Self

import anyio
import anyio.lowlevel
import pytest
from pystream import Context, FailurePolicy, Out, Outcome, PyStream, ServiceState, State, ack, by_key, mount, retry
from pystream.failures import FAIL_FAST
from pystream.harness import start as harnessed
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import failed_run, leftover, publish, publishing, until
from tests.core.threading_support import opened

pytestmark = pytest.mark.anyio

_FORMS = [
    pytest.param(1, id="threads=1"),
    pytest.param(3, id="threads=3"),
    pytest.param(by_key(3), id="by_key(3)"),
]


@pytest.mark.promise("DISPATCH-77")
@pytest.mark.parametrize("threads", _FORMS)
async def test_ten_thousand_are_handled_without_a_stop(threads: Any) -> None:
    """While the service runs, all of 10,000 deliveries are handled, and those of a key in their order."""
    seen: dict[str | bytes | None, list[int]] = {}

    async def handler(payload: bytes, context: Context) -> None:
        seen.setdefault(context.key, []).append(int(payload))
        if int(payload) % 17 == 0:
            await anyio.lowlevel.checkpoint()

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=threads))
    rng = random.Random(7)
    async with app.start() as running:
        publisher = running.publisher()
        for number in range(10_000):
            await publisher.publish(b"%d" % number, "orders", key=str(number % 11))
            if rng.random() < 0.01:
                await anyio.lowlevel.checkpoint()

        with anyio.fail_after(60):
            while sum(map(len, seen.values())) < 10_000:  # noqa: ASYNC110  # threads count
                await anyio.sleep(0.001)

    if threads != 3:
        assert all(numbers == sorted(numbers) for numbers in seen.values())


async def _stopped_at(seed: int, threads: Any) -> None:
    handled: list[bytes] = []

    async def handler(payload: bytes) -> None:
        if int(payload) % 3 == seed % 3:
            await anyio.sleep(0.0002)

        handled.append(payload)

    broker = MemoryBroker()
    app = PyStream("service").with_broker(broker, mount(handler, "orders", threads=threads))
    async with app.start() as running:
        publisher = running.publisher()
        for number in range(200):
            await publisher.publish(b"%d" % number, "orders", key=str(number % 5))

        for _ in range(random.Random(seed).randrange(60)):
            await anyio.lowlevel.checkpoint()

    assert len(handled) == len(set(handled))
    again = await leftover(broker) if len(handled) < 200 else []
    assert sorted(handled + again, key=int) == [b"%d" % number for number in range(200)]


async def _aborted_at(seed: int, threads: Any) -> None:
    handled: list[bytes] = []
    begun = threading.Event()

    async def handler(payload: bytes) -> None:
        begun.set()
        await anyio.sleep(0.0005 if int(payload) < 60 else 60)
        handled.append(payload)

    broker = MemoryBroker()
    app = PyStream("service", shutdown_timeout=0).with_broker(broker, mount(handler, "orders", threads=threads))
    async with app.start() as running:
        await publish(running, *(b"%d" % number for number in range(100)))
        await until(begun.is_set)
        await anyio.sleep(0.002 * seed)

    again = await leftover(broker)
    assert len(handled) == len(set(handled))
    # An acknowledgement follows its handler without a suspension, so that none is handled and given back.
    assert sorted(handled + again, key=int) == [b"%d" % number for number in range(100)]


@pytest.mark.promise("DISPATCH-95")
@pytest.mark.parametrize("threads", _FORMS)
async def test_a_stop_at_any_moment_loses_nothing(threads: Any) -> None:
    """Each message is handled and acknowledged, or handed out again at the next start; none of them both or neither."""
    for seed in range(8):
        await _stopped_at(seed, threads)


@pytest.mark.promise("DISPATCH-95")
@pytest.mark.parametrize("threads", _FORMS)
async def test_an_abort_at_any_moment_loses_nothing(threads: Any) -> None:
    """Also without time for the stop each message is handled and acknowledged, or handed out again."""
    for seed in range(4):
        await _aborted_at(seed, threads)


@pytest.mark.promise("DISPATCH-96")
async def test_the_budget_ends_deliveries_and_then_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    """When the time is spent, handlers on threads are cancelled; continuations only at the very end, and named."""
    steps: list[str] = []
    begun = threading.Event()

    async def after() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("after cancelled")

    async def handler(payload: bytes) -> Outcome:
        if payload == b"1":
            return ack().and_after(after)

        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("handler cancelled")

        return ack()

    broker = MemoryBroker()
    app = PyStream("service", shutdown_timeout=0.1).with_broker(broker, mount(handler, "orders", threads=1))

    @app.after_shutdown
    async def down() -> None:
        steps.append("after_shutdown")

    async with app.start() as running:
        await publish(running, b"1", b"2", b"3")
        await until(begun.is_set)

    assert steps == ["handler cancelled", "after_shutdown", "after cancelled"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(
        text.startswith("service: cancelled at the end of the shutdown:") and "after" in text for text in warnings
    )
    assert sorted(await leftover(broker)) == [b"2", b"3"]


@pytest.mark.promise("DISPATCH-96")
async def test_a_stop_waits_for_what_threads_have_begun() -> None:
    """The stop waits for the continuations of threads before the brokers close, and they may still publish."""
    steps: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    async def after(publisher: Any) -> None:
        begun.set()
        await opened(go_on)
        await publisher.publish(b"2", "elsewhere")
        steps.append("continued")

    async def handler(payload: bytes, out: Out[bytes]) -> Outcome:
        return ack().and_after(after, out)

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=2))

    @app.after_shutdown
    async def down() -> None:
        steps.append("down")

    async with app.start() as running:
        await publish(running, b"1")
        await until(begun.is_set)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.shutdown)
            await until(lambda: running.health.active == frozenset())
            await anyio.sleep(0.02)
            go_on.set()

    assert steps == ["continued", "down"]


class Client:
    """A state that looks, when it is closed, which threads there are."""

    names: ClassVar[list[list[str]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.names.append([thread.name for thread in threading.enumerate() if thread.name.startswith("orders thread")])


@pytest.mark.promise("DISPATCH-96")
async def test_threads_have_ended_when_the_state_is_closed() -> None:
    """What runs on threads may use the state until it has ended; the state is closed after that."""
    Client.names.clear()

    async def handler(payload: bytes, client: State[Client]) -> None: ...

    app = PyStream("service", state=Client).with_broker(MemoryBroker(), mount(handler, "orders", threads=3))
    async with app.start() as running:
        await publish(running, b"1")

    (left,) = Client.names
    assert len(left) <= 1  # an operating system's thread ends a moment after its loop


@pytest.mark.promise("DISPATCH-97")
async def test_a_failing_handler_on_a_thread_fails_the_service() -> None:
    """A fail-fast on a thread stops the service, named as on any other form, and the health says so."""

    async def handler(payload: bytes) -> None:
        raise ValueError("no")

    broker = MemoryBroker()
    handlers = mount(handler, "orders", threads=2, on_failure=FailurePolicy(error=FAIL_FAST))
    app = PyStream("service").with_broker(broker, handlers)
    failure, health = await failed_run(app.start(), publishing(b"1"))

    assert (failure.step, failure.subscription) == ("handler", "orders")
    assert [str(error) for error in failure.errors] == ["no"]
    assert health.state is ServiceState.FAILED
    assert await leftover(broker) == [b"1"]


@pytest.mark.promise("DISPATCH-97")
async def test_unreadable_deliveries_are_counted_over_all_threads() -> None:
    """So many unreadable deliveries in a row as the policy allows stop the service, whichever threads they are on."""

    async def handler(payload: int) -> None: ...

    policy = FailurePolicy(decode_limit=30)
    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=3, on_failure=policy))
    failure, _ = await failed_run(app.start(), publishing(*([b"none"] * 36)))

    assert "30 deliveries in a row could not be read" in str(failure)


@pytest.mark.promise("DISPATCH-97")
async def test_settlements_replies_and_retries_of_threads_arrive() -> None:
    """Replies are published, and retries come back, from threads as from anywhere."""
    seen: list[tuple[bytes, int]] = []
    answers: list[bytes] = []

    async def handler(payload: bytes, context: Context) -> bytes | Outcome:
        seen.append((payload, context.attempt))
        return retry() if context.attempt < 3 else payload

    async def answered(payload: bytes) -> None:
        answers.append(payload)

    app = PyStream("service").with_broker(
        MemoryBroker(), mount(handler, "orders", threads=2, reply_to="answers"), mount(answered, "answers", threads=1)
    )
    async with app.start() as running:
        await publish(running, *(b"%d" % number for number in range(50)))
        await until(lambda: len(answers) == 50)

    assert len(seen) == 150
    assert {attempt for _, attempt in seen} == {1, 2, 3}


@pytest.mark.promise("DISPATCH-98")
@pytest.mark.parametrize("threads", _FORMS)
async def test_in_a_harness_threads_are_workers_on_the_loop(threads: Any) -> None:
    """An app in a test harness runs the handlers of threads on the test's loop, those of a key in their order."""
    names: set[str] = set()
    seen: dict[Any, list[bytes]] = {}

    async def handler(payload: bytes, context: Context) -> None:
        names.add(threading.current_thread().name)
        await anyio.lowlevel.checkpoint()
        seen.setdefault(context.key, []).append(payload)

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=threads))
    async with harnessed(app) as harness:
        for number in range(30):
            await publish(harness.running, b"%02d" % number, key=str(number % 4))

        await until(lambda: sum(map(len, seen.values())) == 30)

    assert names == {threading.current_thread().name}
    assert threads == 3 or all(payloads == sorted(payloads) for payloads in seen.values())


@pytest.mark.promise("DISPATCH-99")
async def test_plain_handlers_run_on_the_thread_itself() -> None:
    """A plain `def` handler under `threads` runs on the dedicated thread, and may block it."""
    names: list[str] = []

    def handler(payload: bytes) -> None:
        time.sleep(0.001)
        names.append(threading.current_thread().name)

    broker = MemoryBroker()
    app = PyStream("service").with_broker(broker, mount(handler, "orders", threads=2))
    async with app.start() as running:
        await publish(running, *(b"%d" % number for number in range(20)))
        await until(lambda: len(names) == 20)

    assert len(names) == 20  # or a handler would have been called again
    assert set(names) == {"orders thread 0", "orders thread 1"}
    assert broker.stored("orders") == 0


@pytest.mark.promise("DISPATCH-99")
async def test_batches_run_on_threads() -> None:
    """A batch is one delivery to a thread: every element is handled and settled once."""
    batches: list[tuple[str, list[bytes]]] = []

    async def handler(payloads: list[bytes]) -> None:
        batches.append((threading.current_thread().name, payloads))

    broker = MemoryBroker()
    app = PyStream("service").with_broker(broker, mount(handler, "orders", threads=2, batch=5))
    async with app.start() as running:
        await publish(running, *(b"%d" % number for number in range(53)))
        await until(lambda: sum(len(batch) for _, batch in batches) >= 40)

    assert sorted((payload for _, batch in batches for payload in batch), key=int) == [b"%d" % n for n in range(53)]
    assert max(len(batch) for _, batch in batches) == 5
    assert {name for name, _ in batches} == {"orders thread 0", "orders thread 1"}
    assert broker.stored("orders") == 0
