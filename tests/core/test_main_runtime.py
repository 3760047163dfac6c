"""`MainRuntime`: the app's own loop, from handlers on threads of their own and elsewhere."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from pystream import MainRuntime, PyStream, mount
from pystream._loops import current_loop
from pystream.errors import ServiceStopped, StrayCancellation
from pystream.main_runtime import Spawned
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import ASYNCIO_ONLY, publish, until
from tests.core.threading_support import opened

pytestmark = pytest.mark.anyio

SECONDS = 10.0
_request: ContextVar[str] = ContextVar("request", default="none")

_FORMS = [pytest.param({"threads": 2}, id="threads"), pytest.param({}, id="default")]


async def served(use: Callable[[MainRuntime], Awaitable[object]], **settings: Any) -> Any:
    """Have a handler use the app's loop once; answers what that came to, or raises what it has raised."""
    outcome: list[tuple[object, BaseException | None]] = []

    async def handler(payload: bytes, main: MainRuntime) -> None:
        try:
            outcome.append((await use(main), None))
        except Exception as error:
            outcome.append((None, error))

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", **settings))
    async with app.start() as running:
        await publish(running, b"1")
        await until(lambda: outcome)

    result, error = outcome[0]
    if error is not None:
        raise error

    return result


async def ended(spawned: Spawned[None]) -> None:
    await until(lambda: spawned.done)


def here() -> str:
    return threading.current_thread().name


@pytest.mark.promise("DISPATCH-90")
@pytest.mark.parametrize("settings", _FORMS)
async def test_functions_run_on_the_apps_loop(settings: dict[str, Any]) -> None:
    """`run` executes coroutine functions and plain ones on the app's loop, and returns their result."""
    home = current_loop()

    async def coroutine(number: int, text: str) -> tuple[int, str, bool]:
        await anyio.lowlevel.checkpoint()
        return number, text, home.is_current()

    def plain(number: int) -> tuple[int, bool]:
        return number, home.is_current()

    async def use(main: MainRuntime) -> object:
        return here(), await main.run(coroutine, 1, "a"), await main.run(plain, 2)

    name, first, second = await served(use, **settings)
    assert name.startswith("orders thread") == bool(settings)
    assert (first, second) == ((1, "a", True), (2, True))


@pytest.mark.promise("DISPATCH-90")
@pytest.mark.parametrize("settings", _FORMS)
async def test_what_a_function_raises_is_raised(settings: dict[str, Any]) -> None:
    """`run` raises the very exception that the function has raised."""
    error = ValueError("of the function")

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    def fail_plainly() -> None:
        raise error

    async def use(main: MainRuntime) -> object:
        for function in (fail, fail_plainly):
            with pytest.raises(ValueError, match="of the function") as caught:
                await main.run(function)

            assert caught.value is error

        return True

    assert await served(use, **settings)


@pytest.mark.promise("DISPATCH-90")
async def test_an_exit_does_not_end_the_app() -> None:
    """An exit that is raised on the app's loop is the caller's affair, not the loop's."""

    async def leave() -> None:
        raise SystemExit(3)

    async def use(main: MainRuntime) -> object:
        with pytest.raises(SystemExit):
            await main.run(leave)

        return await main.run(here)

    assert await served(use, threads=1) == here()


@pytest.mark.promise("DISPATCH-91")
@pytest.mark.parametrize("settings", _FORMS)
async def test_context_variables_of_the_caller_are_seen(settings: dict[str, Any]) -> None:
    """What the caller has set is seen on the app's loop, by `run` and by `spawn`; what is set there, by nobody."""

    async def look() -> str:
        seen = _request.get()
        await anyio.lowlevel.checkpoint()
        return seen

    async def use(main: MainRuntime) -> object:
        _request.set("of the caller")
        first = await main.run(look)

        async def change() -> str:
            seen = _request.get()
            _request.set("changed")
            return seen

        second = await main.spawn(change)
        return first, second, await main.run(_request.get), _request.get()

    assert await served(use, **settings) == ("of the caller",) * 4
    assert _request.get() == "none"


@pytest.mark.promise("DISPATCH-92")
@pytest.mark.parametrize("settings", _FORMS)
async def test_a_cancelled_run_cancels_its_function(settings: dict[str, Any]) -> None:
    """A `run` that is cancelled cancels the function on the app's loop, and waits until it has ended."""
    steps: list[str] = []

    async def sleep() -> None:
        steps.append("begun")
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)

            steps.append("ended")

    async def use(main: MainRuntime) -> object:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(main.run, sleep)
            await until(lambda: steps)
            tasks.cancel_scope.cancel()

        return list(steps)

    assert await served(use, **settings) == ["begun", "ended"]


@pytest.mark.promise("DISPATCH-92")
async def test_a_run_that_is_cancelled_at_once_never_begins() -> None:
    """A `run` that is cancelled before its function has begun leaves no trace on the app's loop."""
    begun: list[str] = []

    async def never() -> None:
        await anyio.lowlevel.checkpoint()
        begun.append("yes")

    async def use(main: MainRuntime) -> object:
        for _ in range(20):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await main.run(never)

        return True

    assert await served(use, threads=1)
    assert begun == []


@pytest.mark.promise("DISPATCH-92")
@ASYNCIO_ONLY
async def test_a_stray_cancellation_is_an_error_of_the_function() -> None:
    """A function that is cancelled by nobody fails with `StrayCancellation`, and its caller is not cancelled."""
    import asyncio

    async def stray() -> None:
        raise asyncio.CancelledError

    async def use(main: MainRuntime) -> object:
        with pytest.raises(StrayCancellation, match=r"stray was cancelled by nobody on the app's loop"):
            await main.run(stray)

        return True

    assert await served(use, threads=1)


@pytest.mark.promise("DISPATCH-93")
@pytest.mark.parametrize("settings", _FORMS)
async def test_spawned_functions_may_be_awaited(settings: dict[str, Any]) -> None:
    """`spawn` returns at once with a handle that gives the result, any number of times, also after the end."""
    go_on = threading.Event()

    async def slow(number: int) -> int:
        await opened(go_on)
        return number

    async def fail() -> None:
        raise ValueError("of the function")

    async def use(main: MainRuntime) -> object:
        spawned = main.spawn(slow, 7)
        before = spawned.done
        with anyio.move_on_after(0.01):
            await spawned  # cancelling the wait changes nothing

        go_on.set()
        first = await spawned
        with pytest.raises(ValueError, match="of the function"):
            await main.spawn(fail)

        return before, first, await spawned, spawned.done

    assert await served(use, **settings) == (False, 7, 7, True)


@pytest.mark.promise("DISPATCH-93")
@pytest.mark.parametrize("settings", _FORMS)
async def test_the_stop_waits_for_what_was_spawned(settings: dict[str, Any]) -> None:
    """What a handler has spawned is waited for at the stop, while the brokers are still connected."""
    steps: list[str] = []
    go_on = anyio.Event()

    async def work() -> None:
        steps.append("begun")
        await go_on.wait()
        await running.publisher().publish(b"2", "elsewhere")
        steps.append("ended")

    async def handler(payload: bytes, main: MainRuntime) -> None:
        main.spawn(work)

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", **settings))

    @app.after_shutdown
    async def down() -> None:
        steps.append("down")

    async with app.start() as running:
        await publish(running, b"1")
        await until(lambda: steps)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.shutdown)
            await anyio.sleep(0.02)
            go_on.set()

    assert steps == ["begun", "ended", "down"]


@pytest.mark.promise("DISPATCH-93")
async def test_an_error_that_nobody_awaits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What a spawned function raises is logged when its handle is gone and was never awaited, and only then."""
    go_on = threading.Event()

    async def fail_soon() -> None:
        raise ValueError("soon")

    async def fail_late() -> None:
        await opened(go_on)
        raise ValueError("late")

    async def fail_told() -> None:
        raise ValueError("told")

    async def use(main: MainRuntime) -> object:
        kept = main.spawn(fail_soon)
        await ended(kept)
        del kept
        main.spawn(fail_late)
        gc.collect()
        go_on.set()
        with pytest.raises(ValueError, match="told"):
            await main.spawn(fail_told)

        return True

    assert await served(use, threads=1)
    gc.collect()
    logged = [
        str(record.exc_info[1]) for record in caplog.records if record.levelno == logging.ERROR and record.exc_info
    ]
    assert sorted(logged) == ["late", "soon"]


@pytest.mark.promise("DISPATCH-94")
async def test_after_the_stop_nothing_runs() -> None:
    """Once the app has stopped, `run` and `spawn` raise `ServiceStopped`, on the app's loop and from any thread."""
    kept: list[MainRuntime] = []

    async def use(main: MainRuntime) -> object:
        kept.append(main)
        return True

    await served(use, threads=1)
    (main,) = kept
    with pytest.raises(ServiceStopped, match="the app has stopped, and its MainRuntime runs nothing any more"):
        await main.run(here)

    with pytest.raises(ServiceStopped):
        main.spawn(here)

    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            main.spawn(here)
        except ServiceStopped as error:
            raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(SECONDS)
    assert len(raised) == 1


@pytest.mark.promise("DISPATCH-94")
async def test_a_stop_refuses_what_has_not_begun() -> None:
    """What was asked for and has not begun when the app stops is refused, and its caller is told."""
    adopted: list[str] = []
    main = MainRuntime(lambda name, run: adopted.append(name))
    raised: list[BaseException] = []
    asked = threading.Event()

    def elsewhere() -> None:
        async def ask() -> None:
            spawned = main.spawn(here)
            asked.set()
            try:
                await spawned
            except ServiceStopped as error:
                raised.append(error)

        anyio.run(ask)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert asked.wait(SECONDS)  # the loop is held: the call that was posted cannot begin
    main.close()
    await until(lambda: not thread.is_alive())
    assert adopted == []
    assert [str(error) for error in raised] == [
        "the app has stopped, and tests.core.test_main_runtime.here was not run on its loop"
    ]


@pytest.mark.promise("DISPATCH-94")
async def test_the_end_of_the_app_cuts_a_run_short() -> None:
    """A function that still runs when the app ends is cancelled, and its caller is told."""
    begun, raised = threading.Event(), []

    async def forever() -> None:
        begun.set()
        await anyio.sleep_forever()

    async def handler(payload: bytes, main: MainRuntime) -> None:
        spawned = main.spawn(forever)

        def elsewhere() -> None:
            async def wait() -> None:
                try:
                    await spawned
                except ServiceStopped as error:
                    raised.append(error)

            anyio.run(wait)

        threading.Thread(target=elsewhere).start()

    app = PyStream("service", shutdown_timeout=0).with_broker(MemoryBroker(), mount(handler, "orders"))
    async with app.start() as running:
        await publish(running, b"1")
        await until(begun.is_set)

    await until(lambda: raised)
    assert str(raised[0]).endswith("forever was cancelled on its loop")


@pytest.mark.promise("DISPATCH-90")
async def test_many_calls_from_many_threads() -> None:
    """Calls of several threads at once each get their own answer."""
    numbers: list[int] = []

    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        return 2 * number

    async def handler(payload: bytes, main: MainRuntime) -> None:
        number = int(payload)
        assert await main.run(double, number) == 2 * number
        numbers.append(number)

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders", threads=4))
    async with app.start() as running:
        await publish(running, *(b"%d" % number for number in range(300)))
        await until(lambda: len(numbers) == 300)

    assert sorted(numbers) == list(range(300))


@pytest.mark.promise("DISPATCH-93")
async def test_a_plain_handler_may_spawn() -> None:
    """What a `def` handler spawns, from a thread on which no loop runs, runs on the app's loop, and may sleep there."""
    names: list[str] = []

    async def note() -> None:
        await anyio.lowlevel.checkpoint()
        names.append(here())

    def handler(payload: bytes, main: MainRuntime) -> None:
        main.spawn(note)

    app = PyStream("service").with_broker(MemoryBroker(), mount(handler, "orders"))
    async with app.start() as running:
        await publish(running, b"1")
        await until(lambda: names)

    assert names == [here()]
