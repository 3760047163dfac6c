"""`Background`: tasks that no task group holds, on every loop."""

from __future__ import annotations

import contextvars
import logging
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pystream.background import Background, running_library

pytestmark = pytest.mark.anyio

_name: contextvars.ContextVar[str] = contextvars.ContextVar("_name")


class Sleeper:
    """A task that sleeps until it is cancelled, and notes how it went."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.ended = False

    async def run(self) -> None:
        self.began.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = True


@pytest.mark.promise("SDK-140")
async def test_task_goes_on_after_the_task_that_started_it() -> None:
    """A background task outlives the task that has started it."""
    background, sleeper = Background(), Sleeper()

    async def start() -> None:
        background.start(sleeper.run, name="sleeper")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(start)

        await sleeper.began.wait()
        await checkpoint()

    assert len(background) == 1
    assert not sleeper.ended
    await background.close()
    assert sleeper.ended
    assert len(background) == 0


@pytest.mark.promise("SDK-140")
async def test_close_from_another_task_ends_every_task() -> None:
    """A close, whichever task makes it, cancels what runs and what has not begun, and waits for all of it."""
    background, sleeper, never = Background(), Sleeper(), Sleeper()
    background.start(sleeper.run, name="sleeper")
    with anyio.fail_after(5):
        await sleeper.began.wait()
        background.start(never.run, name="never")
        async with anyio.create_task_group() as group:
            group.start_soon(background.close)
            group.start_soon(background.close)

        await background.close()

    assert sleeper.ended
    assert len(background) == 0
    with pytest.raises(RuntimeError, match="'late' cannot start"):
        background.start(sleeper.run, name="late")


@pytest.mark.promise("SDK-140")
async def test_failure_of_a_task_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """What a background task raises is one ERROR with the task's name; its siblings go on."""
    background, sleeper = Background(), Sleeper()

    async def fail() -> None:
        raise ValueError("broken")

    with anyio.fail_after(5):
        background.start(sleeper.run, name="sleeper")
        background.start(fail, name="failing")
        await sleeper.began.wait()
        while len(background) > 1:
            await checkpoint()

        assert not sleeper.ended
        await background.close()

    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == "background task failing failed"
    assert record.exc_info is not None


@pytest.mark.promise("SDK-140")
async def test_tasks_see_the_context_of_the_object_that_holds_them() -> None:
    """A background task sees the context variables of its `Background`'s making, not of its start."""
    _name.set("connection")
    background = Background()
    _name.set("handler")
    seen: list[str] = []

    async def look() -> None:
        seen.append(_name.get())
        _name.set("task")

    with anyio.fail_after(5):
        for number in range(2):
            background.start(look, name=f"look {number}")

        while len(background):
            await checkpoint()

    assert seen == ["connection", "connection"]


@pytest.mark.promise("SDK-141")
async def test_running_library_is_named(anyio_backend_name: str) -> None:
    """A plugin learns whose loop runs: asyncio's, uvloop included, or trio's."""
    assert running_library() == anyio_backend_name


@pytest.mark.promise("SDK-141")
def test_no_library_runs_in_a_bare_thread() -> None:
    """Without a loop in the thread there is no library to name, and no `Background`."""
    refused: list[type[Exception]] = []

    def ask() -> None:
        for question in (running_library, Background):
            try:
                question()
            except RuntimeError as error:
                refused.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(5)

    assert refused == [RuntimeError, RuntimeError]
