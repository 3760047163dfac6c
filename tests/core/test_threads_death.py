"""Workers, lanes and threads that die or cannot start: told, named, and nothing of theirs is lost."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from pystream import PyStream, by_key, mount
from pystream._runtime.forms import Form, make_form, make_threads
from pystream._runtime.forms.threads import Threads
from pystream._runtime.pipeline import compile_pipeline
from pystream.errors import RegistrationError, ServiceFailed, SubscribeError, WorkerDied
from pystream.memory import MemoryBroker
from pystream.protocols import Delivery

from tests.core.lifecycle.support import failed_start
from tests.core.rig import rig
from tests.core.scripted import ScriptedDelivery
from tests.core.threading_support import Key, Lone, deliveries, lone, until

pytestmark = pytest.mark.anyio

Start = Callable[[Delivery], Awaitable[None] | None]


class Broken(Exception):
    """What no pipeline catches."""


def deadly(delivery: Delivery) -> Awaitable[None] | None:
    """A start that is broken for some deliveries, before or after a suspension, and settles the others."""
    if delivery.id == "fatal":
        raise Broken("at once")

    return _settle(delivery)


async def _settle(delivery: Delivery) -> None:
    await anyio.lowlevel.checkpoint()
    if delivery.id == "later":
        raise Broken("later")

    await delivery.ack()


def threads(count: Any) -> Callable[[Lone], Form]:
    return lambda made: make_threads(count, "orders", lambda side: deadly, 10, made.has_died)


def tasks(count: Any) -> Callable[[Lone], Form]:
    return lambda made: make_form(count, "orders", made.has_died)


@pytest.mark.promise("DISPATCH-88")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        pytest.param(threads(2), "orders thread 0", id="threads=2"),
        pytest.param(threads(1), "orders thread 0", id="threads=1"),
        pytest.param(threads(by_key(2)), "orders thread 0", id="threads=by_key(2)"),
        pytest.param(tasks(2), "orders worker", id="workers=2"),
        pytest.param(tasks(by_key(2)), "orders lane 0", id="workers=by_key(2)"),
    ],
)
@pytest.mark.parametrize("how", ["fatal", "later"])
async def test_a_death_is_told_and_gives_back(make: Callable[[Lone], Form], name: str, how: str) -> None:
    """A worker that dies is named with its error, and each delivery that was taken is settled or given back."""
    ids = [how, "1", "2", "3", "4"]
    items = [ScriptedDelivery(id_, key=Key(str(place % 2))) for place, id_ in enumerate(ids)]
    async with lone(make, deadly, *items) as running:
        await until(lambda: bool(running.died))
        with anyio.fail_after(10):
            await running.over.wait()

    ((died, error),) = running.died
    assert died.startswith(name)
    assert isinstance(error, Broken)
    assert f"release {how}" in running.journal.lines
    assert [len(item.ends) for item in running.stream.taken] == [1] * len(running.stream.taken)


@pytest.mark.promise("DISPATCH-88")
async def test_a_dead_threads_ring_goes_back_and_the_others_go_on() -> None:
    """What waits in a dead thread's ring is given back, and what is in the rings of the others is handled."""
    begun, go_on = threading.Event(), threading.Event()

    def start(delivery: Delivery) -> Awaitable[None] | None:
        if delivery.id == "1":
            begun.set()
            go_on.wait(10)
            raise Broken

        return _settle(delivery)

    def make(made: Lone) -> Form:
        return make_threads(2, "orders", lambda side: start, 10, made.has_died)

    async with lone(make, start, *deliveries(16)) as running:
        await until(begun.is_set)
        await until(lambda: len(running.journal.lines) == 8)
        go_on.set()
        with anyio.fail_after(10):
            await running.over.wait()

    odd, even = range(1, 16, 2), range(2, 17, 2)
    assert sorted(running.journal.lines) == sorted([*(f"release {n}" for n in odd), *(f"ack {n}" for n in even)])


@pytest.mark.promise("DISPATCH-88")
async def test_a_feeder_does_not_wait_for_a_dead_thread() -> None:
    """A feeder that waits for the ring of a thread that dies gives its delivery back, and ends."""
    go_on = threading.Event()

    def start(delivery: Delivery) -> Awaitable[None] | None:
        go_on.wait(10)
        raise Broken

    def make(made: Lone) -> Form:
        return make_threads(by_key(2), "orders", lambda side: start, 10, made.has_died)

    async with lone(make, start, *deliveries(12, lambda number: Key("0"))) as running:
        form = running.form
        assert isinstance(form, Threads)
        await until(lambda: form._bell.ring is not None)
        go_on.set()
        with anyio.fail_after(10):
            await running.over.wait()

    assert sorted(running.journal.lines) == sorted(f"release {item.id}" for item in running.stream.taken)


@pytest.mark.promise("DISPATCH-88")
async def test_a_feeder_without_threads_ends() -> None:
    """When every thread has died, the feeder that waits for one of them ends, although nobody has stopped it."""
    go_on = threading.Event()

    def start(delivery: Delivery) -> Awaitable[None] | None:
        go_on.wait(10)
        raise Broken

    died: list[str] = []

    def make(made: Lone) -> Form:
        return make_threads(2, "orders", lambda side: start, 10, lambda name, error: died.append(name))

    async with lone(make, start, *deliveries(100)) as running:
        form = running.form
        assert isinstance(form, Threads)
        await until(lambda: form._bell.any_ring)
        go_on.set()
        with anyio.fail_after(10):
            await running.over.wait()

        assert running.intake.open

    assert sorted(died) == ["orders thread 0", "orders thread 1"]
    assert all(item.ends == ["release"] for item in running.stream.taken)


@pytest.mark.promise("DISPATCH-88")
async def test_a_death_fails_the_service_and_names_the_thread() -> None:
    """The death of a thread is a failure of the service's loop that names the subscription and the thread."""

    class Deadly(ScriptedDelivery):
        """Its settlement ends the thread: an error that is no `Exception` is not the settlement's."""

        async def ack(self) -> None:
            raise Exit

    class Exit(BaseException):
        pass

    async def handler(body: bytes) -> None: ...

    async with rig(handler, Deadly("1"), threads=2) as running:
        await running.finished()

    ((step, name, error),) = running.failures
    assert (step, name) == ("loop", "orders")
    assert isinstance(error, WorkerDied)
    assert str(error).startswith("orders thread 0 has ended by Exit")
    assert isinstance(error.__cause__, Exit)
    assert running.lines == ["release 1"]
    assert not running.subscription.running


@pytest.mark.promise("DISPATCH-89")
async def test_a_thread_that_the_system_refuses_refuses_the_start() -> None:
    """Where the system gives no thread the service does not start, and the error names the thread and says why."""

    async def handler(body: bytes) -> None: ...

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=2))
    threading.stack_size(2**46)  # more than there is: the system refuses it
    try:
        failure = await failed_start(app.start())
    finally:
        threading.stack_size(0)

    assert (failure.step, failure.subscription) == ("subscribe", "orders")
    (error,) = failure.errors
    assert isinstance(error, SubscribeError)
    assert str(error) == "the thread 'orders thread 0' could not be started: can't start new thread"


@pytest.mark.promise("DISPATCH-89")
async def test_a_thread_without_a_loop_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread whose loop cannot be made does not open, and the error says why."""

    def make(made: Lone) -> Form:
        form = make_threads(1, "orders", lambda side: deadly, 10, made.has_died)
        assert isinstance(form, Threads)
        form._threads[0]._home = _Loopless(form._threads[0]._home)
        return form

    with pytest.raises(SubscribeError, match="'orders thread 0' could not be started: too many open files"):
        async with lone(make, deadly):
            raise AssertionError("opened")


class _Loopless:
    """A loop that makes no other one."""

    def __init__(self, home: Any) -> None:
        self._home = home

    def __getattr__(self, name: str) -> Any:
        return getattr(self._home, name)

    def run_another(self, main: Any) -> None:
        raise OSError("too many open files")


@pytest.mark.promise("DISPATCH-89")
async def test_a_refused_thread_ends_those_before_it() -> None:
    """When a later thread refuses to prepare, its error is raised as it is, and the threads before it have ended."""
    prepared: list[str] = []

    def compiled(side: Any) -> Start:
        prepared.append(threading.current_thread().name)
        if len(prepared) == 2:
            raise RegistrationError("the state does not fit")

        return deadly

    def make(made: Lone) -> Form:
        return make_threads(3, "orders", compiled, 10, made.has_died)

    with pytest.raises(RegistrationError, match="the state does not fit"):
        async with lone(make, deadly):
            raise AssertionError("opened")

    assert prepared == ["orders thread 0", "orders thread 1"]
    await until(lambda: not any(thread.name.startswith("orders thread") for thread in threading.enumerate()))


@pytest.mark.promise("DISPATCH-89")
async def test_a_subscription_that_is_refused_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a thread of a subscription refuses to open, those before it have ended, and the service says why."""
    compiled: list[str] = []

    def refuse_on_the_second(live: Any) -> Any:
        compiled.append(threading.current_thread().name)
        if compiled[-1].endswith("thread 1"):
            raise RegistrationError("the state does not fit")

        return compile_pipeline(live)

    async def handler(body: bytes) -> None: ...

    monkeypatch.setattr("pystream._runtime.startup.compile_pipeline", refuse_on_the_second)
    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=3))
    failure = await failed_start(app.start())

    assert (failure.step, failure.subscription, str(failure.errors[0])) == (
        "subscribe",
        "orders",
        "the state does not fit",
    )
    assert compiled[1:] == ["orders thread 0", "orders thread 1"]
    await until(lambda: not any(thread.name.startswith("orders thread") for thread in threading.enumerate()))


@pytest.mark.promise("DISPATCH-89")
async def test_an_unwound_start_ends_the_threads() -> None:
    """A start that fails after the threads were opened ends them, and gives nothing out."""

    async def handler(body: bytes) -> None: ...

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=2))

    @app.after_startup
    async def refuse() -> None:
        assert any(thread.name == "orders thread 1" for thread in threading.enumerate())
        raise ValueError("not today")

    failure = await failed_start(app.start())
    assert isinstance(failure, ServiceFailed)
    assert failure.step == "after_startup"
    await until(lambda: not any(thread.name.startswith("orders thread") for thread in threading.enumerate()))
