"""Several processes on one SHARED subscription, of which one is killed under load (case C22).

Only a real server lets consumers of two connections share a subscription.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from live.choice import LiveServer
from live.orders import Order, Unique
from pystream import Out, PyStream, mount
from pystream_pulsar import PulsarBroker, PulsarPublishPolicy, PulsarSubscription
from service.shared_orders import TOPIC, URL

pytestmark = [pytest.mark.anyio, pytest.mark.gate, pytest.mark.timeout(240)]

PUBLISHERS = 20
FOLDER = Path(__file__).parent.parent


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop of the test; that of the service is the test's parameter."""
    return "asyncio", {"use_uvloop": False}


class Orders:
    """Publishes numbers, several at once, until it is told to stop; notes which the server has confirmed."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        self.stopped = False
        self._next = 0

    async def publish(self, publisher: Out[Order], topic: str) -> None:
        """One after the other, without pressing the service too far."""
        while not self.stopped:
            number, self._next = self._next, self._next + 1
            await publisher.publish(Order(id=number), topic)
            self.confirmed.add(number)
            await anyio.sleep(0.02)


class Lines:
    """What a service prints: which process has handled which order."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.running: set[int] = set()
        self.handled: list[tuple[int, int]] = []
        assert process.stdout is not None
        self._stream = BufferedByteReceiveStream(process.stdout)

    @property
    def pids(self) -> Counter[int]:
        """How many orders each process has handled."""
        return Counter(pid for pid, _ in self.handled)

    @property
    def numbers(self) -> list[int]:
        """The orders that were handled."""
        return [number for _, number in self.handled]

    async def until(self, enough: Callable[[], bool]) -> None:
        """Read until `enough()` holds."""
        with anyio.fail_after(60):
            while not enough():
                assert await self._read(), await self.end()

    async def end(self) -> tuple[int, str]:
        """Read to the end; the exit code, and standard error."""
        assert self.process.stderr is not None
        with anyio.fail_after(60):
            while await self._read():
                pass

            told = b"".join([part async for part in self.process.stderr])
            return await self.process.wait(), told.decode()

    async def _read(self) -> bool:
        try:
            line = await self._stream.receive_until(b"\n", 100)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            return False

        pid, *order = map(int, line.split())
        self.running.add(pid)
        self.handled.extend((pid, number) for number in order)
        return True


@asynccontextmanager
async def two_processes(server: LiveServer, topic: str, backend: str) -> AsyncIterator[Lines]:
    """The service in two processes; killed at the end if it still runs, which ends the two as well."""
    command = [sys.executable, "-m", "pystream", "run", "service.shared_orders:make", "--processes", "2"]
    process = await anyio.open_process(
        [*command, "--backend", backend, "--log-level", "critical"],
        cwd=FOLDER,
        env={**os.environ, URL: server.url, TOPIC: topic},
    )
    async with process:
        try:
            yield Lines(process)
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.promise("PULSAR-180", "PULSAR-181")
@pytest.mark.parametrize(("backend", "batching"), [("asyncio", True), ("uvloop", False), ("trio", True)])
async def test_a_killed_process_loses_nothing(
    real_server: LiveServer, unique: Unique, note: Callable[[str], None], backend: str, batching: bool
) -> None:
    """Two processes share the orders; one is killed at work, the service ends, and its next start handles the rest."""
    topic, orders = unique("killed-process"), Orders()
    broker = PulsarBroker(real_server.url)

    async def nobody(order: Order) -> None:
        raise AssertionError

    async with PyStream("first").with_broker(broker, mount(nobody, PulsarSubscription(topic, "reader"))).start():
        pass  # the subscription exists from now on

    async with PyStream("sender").with_broker(broker).start() as sender, anyio.create_task_group() as tasks:
        publisher = sender.publisher(policy=PulsarPublishPolicy(batching=batching))
        async with two_processes(real_server, topic, backend) as first:
            await first.until(lambda: len(first.running) == 2)
            for _ in range(PUBLISHERS):
                tasks.start_soon(orders.publish, publisher, topic)

            moment = random.randint(200, 1_000)
            await first.until(lambda: len(first.pids) == 2 and min(first.pids.values()) > moment)
            victim = random.choice(list(first.pids))
            os.kill(victim, signal.SIGKILL)
            code, told = await first.end()

        orders.stopped = True

    sentence = (
        r"Error: service.shared_orders:make failed \(process\): process \d of 2 \(pid (\d+)\) was killed by SIGKILL\n"
    )
    match = re.fullmatch(sentence, told)
    assert code == 1
    assert match is not None, told
    assert int(match[1]) == victim

    async with two_processes(real_server, topic, backend) as second:
        await second.until(lambda: orders.confirmed <= {*first.numbers, *second.numbers})
        second.process.send_signal(signal.SIGTERM)
        assert await second.end() == (0, "")

    handled = first.numbers + second.numbers
    note(
        f"process killed while consuming ({backend}, {'batches' if batching else 'single messages'}): "
        f"{len(orders.confirmed)} confirmed, {len(first.handled)} handled by the two of the first start, "
        f"{len(second.handled)} by those of the second, 0 lost, {len(handled) - len(set(handled))} handled twice"
    )
