"""Trap 8: no exception leaves a callback, and no answer needs its loop to be there still."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from pystream_pulsar._client.callbacks import Answer, guarded


@pytest.mark.promise("PULSAR-42")
@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_callback_raises_nothing(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a callback raises, even what is no `Exception`, is logged and goes no further."""

    def fail(*_values: Any) -> None:
        raise error

    guarded(fail)(1, 2)
    assert "callback of the Pulsar client failed" in caplog.text


@pytest.mark.promise("PULSAR-42")
def test_a_callback_survives_a_log_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback raises nothing when logging the failure fails too, as it does during exit."""

    def fail(*_values: Any, **_options: Any) -> None:
        raise RuntimeError("shut down")

    monkeypatch.setattr("pystream_pulsar._client.callbacks._log.error", fail)
    guarded(fail)()


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-42")
async def test_an_answer_from_a_thread() -> None:
    """An answer that comes on a thread of the client's wakes the task that waits for it."""
    answer = Answer()
    thread = threading.Timer(0.01, answer.callback, ("result", "handle"))
    thread.start()
    with anyio.fail_after(5):
        assert await answer.wait() == ("result", "handle")


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-42")
async def test_an_answer_in_line() -> None:
    """An answer that came before anybody waited is there at once."""
    answer = Answer()
    answer.callback("result")
    with anyio.fail_after(5):
        assert await answer.wait() == ("result",)


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-43")
async def test_a_cancelled_wait_puts_away_what_opens_later() -> None:
    """When the waiting task is cancelled, a later answer goes to `late`, which closes what was opened."""
    late: list[Any] = []
    answer = Answer(late=lambda *values: late.append(values))
    with anyio.move_on_after(0):
        await answer.wait()

    assert late == []
    answer.callback("ok", "consumer")
    assert late == [("ok", "consumer")]


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-43")
async def test_a_wait_cancelled_beside_its_answer() -> None:
    """An answer that meets a cancellation is taken once: by the task, or by `late`."""
    taken: list[Any] = []
    answer = Answer(late=lambda *values: taken.append(values))

    async def wait() -> None:
        taken.append(await answer.wait())

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            answer.callback("ok", "consumer")
            scope.cancel()

    assert taken == [("ok", "consumer")]


@pytest.mark.promise("PULSAR-42")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_answer_after_the_loop(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that comes when its loop is closed disturbs nobody and logs nothing."""
    answer = Answer()

    async def leave() -> None:
        with anyio.move_on_after(0.01):
            await answer.wait()

    anyio.run(leave, backend=backend)
    answer.callback("ok")
    assert caplog.text == ""
