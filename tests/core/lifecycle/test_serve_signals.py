"""`serve` and real signals, in a process of its own."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from pystream._runtime import signals

from tests.core.command import SECONDS, environment

PROGRAM = """
    import json
    import sys

    import anyio

    from pystream import PyStream, ServiceAborted, ServiceFailed, subscriber
    from pystream.memory import MemoryBroker

    backend, kind = sys.argv[1:]


    def say(*words):
        print(*words, flush=True)


    class Hanging(MemoryBroker):
        async def connect(self, clock):
            say("connecting")
            await anyio.sleep_forever()


    @subscriber("orders")
    async def handle(payload: bytes) -> None:
        say("in hand")
        try:
            await anyio.sleep(0.05 if kind == "quick" else 3600)
            say("handled")
        finally:
            say("left")


    broker = Hanging() if kind == "hanging connect" else MemoryBroker()
    app = PyStream("shop").with_broker(broker, handle)
    if kind in ("quick", "slow"):
        app.on_shutdown(lambda: say("on_shutdown"))
        app.after_shutdown(lambda: say("after_shutdown"))

        @app.after_startup
        async def publish():
            connection = broker._connections[-1]
            from pystream.protocols import Outgoing
            await connection.publisher().publish(Outgoing("orders", b"1", {}))


    if kind == "twice":
        import os, signal

        app.after_startup(lambda: say("in hand"))
        app.on_shutdown(lambda: os.kill(os.getpid(), signal.SIGTERM))


    async def main():
        try:
            await app.serve()
            say(json.dumps({"ended": "clean"}))
        except ServiceAborted as error:
            say(json.dumps({"ended": "aborted", "signum": error.signum, "says": str(error)}))

        say("stored", broker.stored("orders"))


    options = {"use_uvloop": True} if backend == "uvloop" else {}
    anyio.run(main, backend="trio" if backend == "trio" else "asyncio", backend_options=options)
"""


class Process:
    """The program; its lines are read by a thread, so that waiting for one is bounded."""

    def __init__(self, path: Path, backend: str, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(path), backend, kind],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._next: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))

    def until(self, wanted: str) -> None:
        while wanted not in self.lines:
            self.lines.append(self._queue.get(timeout=SECONDS))

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def send_until_it_speaks(self, signum: signal.Signals) -> None:
        """Repeat the signal, more than half a second apart: its first may come too soon to count."""
        for _ in range(SECONDS):
            self.send(signum)
            try:
                self._next = [self._queue.get(timeout=1.0)]
                return
            except queue.Empty:
                continue

        raise AssertionError("no signal had an effect")

    def end(self) -> list[str]:
        """Wait for a clean exit of the process; every line after the last one waited for."""
        assert self.process.wait(SECONDS) == 0
        self._reader.join(SECONDS)
        return [*self._next, *self._queue.queue]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)

        self._reader.join(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str, str], Process]]:
    """Starts the program, and ends what a failed test has left."""
    path = tmp_path / "program.py"
    path.write_text(dedent(PROGRAM))
    started: list[Process] = []

    def begin(backend: str, kind: str) -> Process:
        started.append(Process(path, backend, kind))
        return started[-1]

    yield begin

    for process in started:
        process.close()


BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
CLEAN = json.dumps({"ended": "clean"})


@pytest.mark.promise("STOP-25")
@BACKENDS
def test_one_signal_is_a_graceful_stop(start: Callable[[str, str], Process], backend: str) -> None:
    """SIGTERM lets the delivery in hand finish, goes through the steps, and serve returns."""
    process = start(backend, "quick")
    process.until("in hand")
    process.send(signal.SIGTERM)

    assert process.end() == ["on_shutdown", "handled", "left", "after_shutdown", CLEAN, "stored 0"]


@pytest.mark.promise("STOP-25")
def test_signal_delivered_twice_is_one_request(start: Callable[[str, str], Process]) -> None:
    """A repeat within half a second of the first signal changes nothing."""
    process = start("asyncio", "twice")
    process.until("in hand")
    process.send(signal.SIGTERM)

    assert process.end() == [CLEAN, "stored 0"]


@pytest.mark.promise("STOP-25")
@BACKENDS
def test_second_signal_aborts(start: Callable[[str, str], Process], backend: str) -> None:
    """A second signal cancels what is in hand, gives it back and ends serve with ServiceAborted, its number inside."""
    process = start(backend, "slow")
    process.until("in hand")
    process.send(signal.SIGTERM)
    process.until("on_shutdown")
    process.send_until_it_speaks(signal.SIGINT)

    aborted = {"ended": "aborted", "signum": 2, "says": "shop was aborted by a second signal (SIGINT)"}
    assert process.end() == [
        "shop: 1 of 1 subscriptions had not finished when the shutdown was aborted (orders); "
        "they are cancelled, and what they do not finish goes back unsettled",
        "left",
        "after_shutdown",
        json.dumps(aborted),
        "stored 1",
    ]


@pytest.mark.promise("STOP-25")
@BACKENDS
def test_signal_ends_a_hanging_start(start: Callable[[str, str], Process], backend: str) -> None:
    """SIGINT while a broker is being connected ends serve cleanly and at once."""
    process = start(backend, "hanging connect")
    process.until("connecting")
    process.send(signal.SIGINT)

    assert process.end() == [CLEAN, "stored 0"]


class Received:
    """Signals at given times, as `anyio.open_signal_receiver` would give them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
        self._times = iter(times)
        self._now = 0.0
        monkeypatch.setattr("pystream._runtime.signals.anyio.current_time", lambda: self._now)

    def __aiter__(self) -> Received:
        return self

    async def __anext__(self) -> signal.Signals:
        try:
            self._now = next(self._times)
        except StopIteration:
            raise StopAsyncIteration from None

        return signal.SIGTERM


@pytest.mark.promise("STOP-25")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("times", "calls"),
    [
        ([10.0], ["stop"]),
        ([10.0, 10.0, 10.49], ["stop"]),
        ([10.0, 10.5], ["stop", "abort 15"]),
        ([10.0, 10.2, 11.0], ["stop", "abort 15"]),
    ],
)
async def test_half_a_second_tells_a_repeat_from_a_second_request(
    times: list[float], calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals within 0.5 s of the first are the same request; one at 0.5 s or later aborts."""
    made: list[str] = []
    received = Received(monkeypatch, *times)
    await signals._follow(received, lambda: made.append("stop"), lambda signum: made.append(f"abort {signum}"))

    assert made == calls
