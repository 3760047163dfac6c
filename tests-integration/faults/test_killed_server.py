"""A server that is killed as by a power cut and started again, under load: nothing that was confirmed is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest
from live.orders import Log, Order, Unique, publish_orders
from live.real import RealPulsar
from pystream import Out, PyStream, State, by_key, mount
from pystream.errors import PublishError
from pystream_pulsar import PulsarBroker, PulsarPublishPolicy, PulsarSubscription

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(400)]

Note = Callable[[str], None]

PUBLISHERS = 50


@pytest.fixture
def anyio_backend(backend_name: str) -> tuple[str, dict[str, bool]]:
    """The loop that a test names."""
    return ("trio", {}) if backend_name == "trio" else ("asyncio", {"use_uvloop": backend_name == "uvloop"})


async def kill_and_start(server: RealPulsar) -> None:
    """Kill the server and start it again on the same data and ports."""
    await anyio.to_thread.run_sync(server.kill)
    await anyio.to_thread.run_sync(server.start)


class Confirmed:
    """Publishes numbers, several at once, until it is told to stop; notes which the server has confirmed."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.failed = 0
        self.stopped = False
        self._next = 0

    async def run(self, publisher: Out[Order], topic: str) -> None:
        """Publish one after the other; a number that failed is not tried again."""
        while not self.stopped:
            number, self._next = self._next, self._next + 1
            try:
                await publisher.publish(Order(id=number), topic)
            except PublishError:
                self.failed += 1
            else:
                self.numbers.add(number)

    async def reaches(self, count: int) -> None:
        """Return when so many are confirmed."""
        with anyio.fail_after(120):
            while len(self.numbers) < count:  # noqa: ASYNC110  # what changes it is a hot loop; a look is enough
                await anyio.sleep(0.05)


@pytest.mark.promise("PULSAR-170")
@pytest.mark.parametrize(
    ("backend_name", "send_timeout"), [("asyncio", 30.0), ("trio", 2.0)], ids=["patient", "impatient"]
)
async def test_killed_while_publishing(
    own_server: RealPulsar, unique: Unique, note: Note, backend_name: str, send_timeout: float
) -> None:
    """Every message that was confirmed, before the kill or after, is handled; those that failed may be."""
    topic, log, confirmed = unique("killed"), Log(), Confirmed()

    async def read(order: Order, log: State[Log]) -> None:
        log.add(order.id)

    broker = PulsarBroker(own_server.url)
    source = PulsarSubscription(topic, "reader")
    app = PyStream("reader", state=log).with_broker(broker, mount(read, source))
    async with app.start():
        pass  # the subscription exists from now on

    async with PyStream("sender").with_broker(broker).start() as sender:
        publisher = sender.publisher(policy=PulsarPublishPolicy(send_timeout=send_timeout))
        async with anyio.create_task_group() as tasks:
            for _ in range(PUBLISHERS):
                tasks.start_soon(confirmed.run, publisher, topic)

            await confirmed.reaches(random.randint(500, 3_000))
            before = len(confirmed.numbers)
            await kill_and_start(own_server)
            await confirmed.reaches(before + 2_000)
            confirmed.stopped = True

    async with app.start():
        await log.until(lambda: confirmed.numbers <= set(log.seen), 120)

    times = Counter(log.seen)
    note(
        f"killed while publishing ({backend_name}, send timeout {send_timeout:g} s): {len(confirmed.numbers)} confirmed"
        f" ({before} before the kill), {confirmed.failed} failed, {len(log.seen)} handled, 0 lost, "
        f"{len(log.seen) - len(times)} duplicates, {len(times.keys() - confirmed.numbers)} failed yet stored; "
        f"started again in {own_server.start_seconds:.1f} s"
    )


@pytest.mark.promise("PULSAR-171")
@pytest.mark.parametrize(
    ("backend_name", "workers"), [("uvloop", 16), ("asyncio", by_key(16))], ids=["workers", "by_key"]
)
async def test_killed_while_consuming(
    own_server: RealPulsar, unique: Unique, note: Note, backend_name: str, workers: int
) -> None:
    """Of 20,000 messages each is handled, whenever the server is killed meanwhile, and none stays behind."""
    topic, log, count = unique("killed"), Log(), 20_000

    async def read(order: Order, log: State[Log]) -> None:
        await anyio.sleep(0.001)  # a handler in whose hands messages are when the server dies
        log.add(order.id)

    broker = PulsarBroker(own_server.url)
    app = PyStream("reader", state=log).with_broker(
        broker, mount(read, PulsarSubscription(topic, "reader"), workers=workers)
    )
    async with app.start():
        pass  # the subscription exists from now on

    async with PyStream("sender").with_broker(broker).start() as sender, anyio.create_task_group() as tasks:
        for key in range(20):
            tasks.start_soon(publish_orders, sender.publisher(), topic, range(key, count, 20), f"key-{key}")

    moment = random.randint(1_000, count - 5_000)
    async with app.start() as running:
        await log.distinct(moment)
        await kill_and_start(own_server)
        handled = len(log.seen)
        await log.distinct(count, 180)
        await publish_orders(running.publisher(), topic, [count])
        await log.distinct(count + 1)

    total = len(log.seen)
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, [count + 1])
        await log.distinct(count + 2)

    # Anything that was not settled would have come before the last one.
    assert log.seen[total:] == [count + 1]
    note(
        f"killed while consuming ({backend_name}): after {moment} of {count} messages, {handled} handled until it was "
        f"back, {total} in all, 0 lost, {total - count - 1} duplicates; started again in "
        f"{own_server.start_seconds:.1f} s"
    )
