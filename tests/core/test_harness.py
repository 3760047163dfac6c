"""`pystream.harness`: what a harness may replace, what it is told, and that a production start has nothing of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from pystream import Outcome, PyStream, ServiceFailed, State, ack, harness, mount, retry_after
from pystream.errors import ConnectError, NotConnected
from pystream.harness import Instrument, Probe
from pystream.memory import MemoryBroker
from pystream.protocols import Broker, Clock, ConnectedBroker, Delivery, Outgoing

from tests.manual_clock import ManualClock

_PATIENCE = 5.0

_DESCRIBE = """
import sys, types

import anyio
from pystream import Context, PyStream, State, by_key, mount
from pystream.memory import MemoryBroker


async def plain(number: int) -> None: ...
async def replies(number: int, ctx: Context) -> int: return number
async def many(number: int, ctx: Context, state: State[int]) -> None: ...


def app():
    made = PyStream("shop", state=1).with_broker(
        MemoryBroker(),
        mount(plain, "a"),
        mount(replies, "b", workers=3, reply_to="a"),
        mount(many, "c", workers=by_key(2)),
    )
    return made


def described(value, seen):
    if isinstance(value, types.MethodType):
        return ["method", described(value.__func__, seen), described(value.__self__, seen)]

    if isinstance(value, types.FunctionType):
        if value in seen:
            return value.__qualname__

        seen.add(value)
        code = value.__code__
        cells = [described(cell.cell_contents, seen) for cell in value.__closure__ or ()]
        return [value.__module__, value.__qualname__, code.co_code.hex(), code.co_names, code.co_freevars, cells]

    kind = type(value)
    layout = [(part.__qualname__, getattr(part, "__slots__", None)) for part in kind.__mro__]
    return [kind.__module__, kind.__qualname__, layout]


async def main():
    async with app().start() as running:
        service = running._service
        print(described(service, set()), described(service.startup, set()), described(service.startup.tracker, set()))
        for (_, broker) in service.startup.brokers:
            print(described(broker, set()), described(broker.publisher(), set()))
        for (_, subscription) in service.startup.subscriptions:
            print(described(subscription._start, set()))
            for part in (subscription._form, subscription._intake, subscription._intake.take, subscription._subscriber):
                print(described(part, set()))


async def harnessed():
    from pystream_testing import TestApp

    async with TestApp.start(app()) as t:
        await t.broker().publish("b", 1)
        assert len(t.subscriber(plain)) == 1


if "harness" in sys.argv:
    anyio.run(harnessed)

anyio.run(main)
ours = [name for name in sys.modules if name.startswith("pystream")]
print("loaded", sorted(name for name in ours if "harness" in name or "observed" in name or "_testing" in name))
"""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", _DESCRIBE, *arguments], capture_output=True, text=True, timeout=30, check=True
    )


@pytest.mark.promise("TESTING-40")
def test_production_start_has_nothing_of_a_harness() -> None:
    """A production start imports nothing of it, and compiles the same code over the same objects beside one."""
    alone, beside = _run(), _run("harness")

    (*production, loaded), (*other, loaded_beside) = alone.stdout.splitlines(), beside.stdout.splitlines()
    assert loaded == "loaded []"
    assert "pystream.harness" in loaded_beside
    assert "pystream._runtime.pipeline" in alone.stdout
    assert production == other


class _Lines(Instrument):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.changed = anyio.Event()

    def note(self, line: str) -> None:
        self.lines.append(line)
        self.changed.set()

    def subscription(self, name: str) -> Probe:
        return _ProbeLines(name, self)

    def publishing(self, broker: int, outgoing: Outgoing) -> None:
        self.note(f"publishing to {outgoing.destination} of {broker}")

    def published(self, broker: int, outgoing: Outgoing, error: BaseException | None) -> None:
        self.note(f"published to {outgoing.destination} of {broker}: {error!r}")

    def tracked(self, name: str, runs: bool) -> None:
        self.note(f"task {'begins' if runs else 'ends'}")

    def stopping(self) -> None:
        self.note("stopping")

    async def until(self, line: str) -> None:
        with anyio.fail_after(_PATIENCE):
            while line not in self.lines:
                self.changed = anyio.Event()
                await self.changed.wait()


class _ProbeLines(Probe):
    def __init__(self, name: str, instrument: _Lines) -> None:
        self._name = name
        self._note = instrument.note

    def taken(self, delivery: Delivery) -> None:
        self._note(f"{self._name} taken {delivery.payload.decode()}")

    def began(self, delivery: Delivery) -> None:
        self._note(f"{self._name} began")

    def called(self, delivery: Delivery, value: Any) -> None:
        self._note(f"{self._name} called {value!r}")

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        self._note(f"{self._name} failed {type(error).__name__}")

    def handled(self, delivery: Delivery, outcome: Outcome | None) -> None:
        self._note(f"{self._name} handled {outcome and outcome.kind}")

    def settling(self, delivery: Delivery, outcome: Outcome, again: float | None) -> None:
        self._note(f"{self._name} settling {outcome.kind}")

    def settled(self, delivery: Delivery, outcome: Outcome, error: Exception | None) -> None:
        self._note(f"{self._name} settled {outcome.kind}: {error!r}")

    def ended(self, delivery: Delivery) -> None:
        self._note(f"{self._name} ended")


async def _afterwards() -> None:
    """A continuation that is a task."""


async def _handle(number: int) -> int | Outcome:
    match number:
        case 1:
            return 10
        case 2:
            return ack().and_after(_afterwards)

    raise ValueError("no such number")


@pytest.mark.anyio
@pytest.mark.promise("TESTING-43")
async def test_instrument_is_told_of_every_step() -> None:
    """Each delivery is told from take to end, with its publishes and tasks between, and the stop comes last."""
    instrument = _Lines()
    app = PyStream("shop").with_broker(MemoryBroker(), mount(_handle, "n", reply_to="r"))
    async with harness.start(app, instrument=instrument) as harnessed:
        publisher = harnessed.running.publisher()
        for number, last in ((1, "n ended"), (2, "task ends")):
            await publisher.publish(number, "n")
            await instrument.until(last)
            if number == 1:
                assert instrument.lines == [
                    "publishing to n of 0", "published to n of 0: None", "n taken 1", "n began", "n called 1",
                    "publishing to r of 0", "published to r of 0: None", "n handled ack", "n settling ack",
                    "n settled ack: None", "n ended",
                ]  # fmt: skip

            instrument.lines.clear()

        for payload in (b"3", b"x"):
            await publisher.publish(payload, "n")
            await instrument.until("n ended")
            instrument.lines, seen = [], instrument.lines
            if payload == b"3":
                assert seen[3:] == [
                    "n began", "n called 3", "n failed ValueError", "n handled retry", "n settling retry",
                    "n settled retry: None", "n ended",
                ]  # fmt: skip
            else:
                assert seen[3:] == [
                    "n began", "n failed DecodeError", "n handled drop", "n settling drop", "n settled drop: None",
                    "n ended",
                ]  # fmt: skip

    assert instrument.lines == ["stopping"]
    assert harnessed.failure is None


@pytest.mark.anyio
@pytest.mark.promise("TESTING-43")
async def test_failed_publish_is_told() -> None:
    """A publish that raises is told with its error."""
    instrument = _Lines()
    async with harness.start(PyStream("shop").with_broker(MemoryBroker()), instrument=instrument) as harnessed:
        with pytest.raises(Exception, match="destination refused"):
            await harnessed.running.publisher().publish(1, "")

    assert instrument.lines[1].startswith("published to  of 0: PublishError(")


@pytest.mark.anyio
@pytest.mark.promise("TESTING-41")
async def test_another_clock_and_another_connection() -> None:
    """Every broker is connected as the harness says, with its clock, and a delay goes by that clock."""
    clock, connected = ManualClock(), []
    first, again = anyio.Event(), anyio.Event()

    async def handle(number: int) -> Outcome:
        if first.is_set():
            again.set()
            return ack()

        return retry_after(5).and_after(first.set)

    async def connect(broker: Broker, given: Clock) -> ConnectedBroker:
        connected.append((broker.describe(), given))
        return await broker.connect(given)

    app = PyStream("shop").with_broker(MemoryBroker("a"), mount(handle, "n"), label="a")
    app.with_broker(MemoryBroker("b"), label="b")
    async with harness.start(app, clock=lambda: clock, connect=connect) as harnessed:
        await harnessed.running.publisher("a").publish(1, "n")
        with anyio.fail_after(_PATIENCE):
            await first.wait()
            assert clock.timers == 1
            clock.advance(5)
            await again.wait()

    assert connected == [("memory://a", clock), ("memory://b", clock)]


def _noting(lines: list[str], line: str) -> Callable[[], None]:
    def note() -> None:
        lines.append(line)

    return note


@pytest.mark.anyio
@pytest.mark.promise("TESTING-41")
async def test_another_state_in_the_same_order() -> None:
    """A state is opened in the app's place, before the hooks, and closed last; the app keeps its own."""
    lines: list[str] = []

    async def state() -> AsyncIterator[str]:
        lines.append("state opens")
        yield "another"
        lines.append("state closes")

    async def handle(number: int, state: State[str]) -> None:
        lines.append(state)
        done.set()

    app = PyStream("shop", state="own").with_broker(MemoryBroker(), mount(handle, "n"))
    for hook in ("on_startup", "after_startup", "on_shutdown", "after_shutdown"):
        getattr(app, hook)(_noting(lines, hook))

    for start in (lambda: harness.start(app, state=state), app.start):
        done = anyio.Event()
        async with start() as made:
            running = made.running if isinstance(made, harness.Harnessed) else made
            await running.publisher().publish(1, "n")
            with anyio.fail_after(_PATIENCE):
                await done.wait()

    hooks = ["on_startup", "after_startup", "{}", "on_shutdown", "after_shutdown"]
    another, own = ([line.format(value) for line in hooks] for value in ("another", "own"))
    assert lines == ["state opens", *another, "state closes", *own]


@pytest.mark.anyio
@pytest.mark.promise("TESTING-42")
async def test_state_is_built_from_the_connected_brokers() -> None:
    """A builder gets connections that work, and those are the ones that the service uses."""
    seen: list[ConnectedBroker] = []
    got: list[Any] = []

    def build(brokers: harness.Brokers) -> Any:
        (broker,) = brokers
        seen.append(broker.connection)
        assert [handler.name for handler in broker.handlers] == ["n"]
        return broker.connection.publisher

    async def handle(number: int, state: State[Any]) -> None:
        got.append(state)

    app = PyStream("shop", state="own").with_broker(MemoryBroker(), mount(handle, "n"))
    with pytest.raises(NotConnected):
        _ = harness.brokers(app)[0].connection

    async with harness.start(app, build_state=build) as harnessed:
        assert [broker.connected for broker in harnessed.brokers] == seen


@pytest.mark.anyio
@pytest.mark.promise("TESTING-42")
@pytest.mark.parametrize("where", ["build", "hook"])
async def test_early_connections_are_closed_if_the_start_fails(where: str) -> None:
    """What was connected for the state is closed whichever step fails before the service uses it."""
    closed: list[str] = []

    class Watched:
        def __init__(self, inner: ConnectedBroker, name: str) -> None:
            self._inner, self._name = inner, name

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def close(self) -> None:
            closed.append(self._name)
            await self._inner.close()

    async def connect(broker: Broker, clock: Clock) -> Any:
        if broker.describe() == "memory://c":
            raise ConnectError("no way")

        return Watched(await broker.connect(clock), broker.describe())

    def build(brokers: harness.Brokers) -> Any:
        if where == "build":
            raise ValueError("no state")

    app = PyStream("shop").with_broker(MemoryBroker("a"), label="a").with_broker(MemoryBroker("b"), label="b")

    @app.on_startup
    def fail() -> None:
        raise ValueError("no hook")

    with pytest.raises(ServiceFailed, match="no state" if where == "build" else "no hook"):
        async with harness.start(app, connect=connect, build_state=build):
            pass

    assert closed == ["memory://a", "memory://b"]
