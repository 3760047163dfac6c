"""How dedicated threads end: by a stop, a cancellation, a failure; and what becomes of what they hold."""

from __future__ import annotations

import logging
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from pystream import Context, FailurePolicy, Outcome, ack, by_key, retry_after
from pystream._loops import current_loop
from pystream._runtime import dedicated
from pystream.failures import FAIL_FAST

from tests.core.rig import rig
from tests.core.scripted import ScriptedDelivery, ScriptedSource
from tests.core.threading_support import Gates, Key, deliveries, form_of, opened, still, until

pytestmark = pytest.mark.anyio

_FORMS = [
    pytest.param(1, id="threads=1"),
    pytest.param(3, id="threads=3"),
    pytest.param(by_key(2), id="by_key(2)"),
]
IN_PLACE = ScriptedSource(retry="in_place")


@pytest.mark.promise("DISPATCH-81")
@pytest.mark.parametrize("threads", _FORMS)
async def test_a_stop_has_everything_in_hand_handled(threads: Any) -> None:
    """After a stop nothing is taken, and what was taken - running, in rings, in the feeder's hand - is settled."""
    gates = Gates()
    items = deliveries(60, lambda number: Key(str(number % 2)))
    async with rig(gates.handle, *items, threads=threads) as running:
        await until(lambda: len(gates.running) == (1 if threads == 1 else 3 if threads == 3 else 2))
        await still(form_of(running))
        taken = len(running.stream.taken)
        assert 8 <= taken < 60
        running.subscription.stop()
        await still(form_of(running))
        assert running.lines == []
        await gates.let_all_go(running, taken)
        await running.finished()

    assert len(running.stream.taken) == taken
    assert sorted(running.lines) == sorted(f"ack {number}" for number in range(1, taken + 1))


@pytest.mark.promise("DISPATCH-82")
async def test_a_stop_ends_a_wait_for_any_ring() -> None:
    """A feeder that waits with nothing in its hand takes nothing more after a stop, however many slots become free."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(30), threads=1) as running:
        await until(lambda: form_of(running)._bell.any_ring)
        running.subscription.stop()
        await until(lambda: not form_of(running)._bell.any_ring)
        taken = len(running.stream.taken)
        await gates.let_all_go(running, taken)
        await running.finished()

    assert len(running.stream.taken) == taken


@pytest.mark.promise("DISPATCH-82")
async def test_a_stop_does_not_end_a_wait_for_one_ring() -> None:
    """A feeder that waits with a delivery in its hand still hands it over after a stop, and it is handled."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(30, lambda number: Key("0")), threads=by_key(2)) as running:
        await until(lambda: form_of(running)._bell.ring is not None)
        await still(form_of(running))
        taken = len(running.stream.taken)
        running.subscription.stop()
        await still(form_of(running))
        assert form_of(running)._bell.ring is not None
        assert not running.stream.taken[-1].ends
        await gates.let_all_go(running, taken)
        await running.finished()

    assert running.lines == [f"ack {number}" for number in range(1, taken + 1)]


@pytest.mark.promise("DISPATCH-81")
@pytest.mark.parametrize("threads", _FORMS)
async def test_an_idle_form_ends_at_once(threads: Any) -> None:
    """A form that waits for the stream, its threads asleep, ends with a stop; and its threads end."""

    async def handler(body: bytes) -> None: ...

    async with rig(handler, threads=threads) as running:
        await still(form_of(running))
        await running.stop()
        assert running.stream.waiters == 0
        await until(lambda: all(thread.ended.is_set() for thread in form_of(running)._threads))


@pytest.mark.promise("DISPATCH-83")
@pytest.mark.parametrize("threads", _FORMS)
async def test_a_cancellation_gives_everything_in_hand_back(threads: Any) -> None:
    """A cancelled form releases what it holds, each once, and settles nothing; a handler's `finally` runs."""
    gates = Gates()
    items = deliveries(60, lambda number: Key(str(number % 2)))
    async with rig(gates.handle, *items, threads=threads) as running:
        await until(lambda: len(gates.running) == (1 if threads == 1 else 3 if threads == 3 else 2))
        await still(form_of(running))
        taken = len(running.stream.taken)
        running.subscription.cancel()
        await running.finished()
        assert gates.running == []

    assert sorted(running.lines) == sorted(f"release {number}" for number in range(1, taken + 1))
    assert all(delivery.ends == ["release"] for delivery in running.stream.taken)


@pytest.mark.promise("DISPATCH-83")
async def test_a_cancelled_handler_may_clean_up() -> None:
    """A handler that is cancelled on its thread may still await in its `finally`."""
    begun, cleaned = threading.Event(), threading.Event()

    async def handler(body: bytes) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.sleep(0.05)
            cleaned.set()

    async with rig(handler, ScriptedDelivery("1"), threads=2) as running:
        await until(begun.is_set)
        running.subscription.cancel()
        await running.finished()
        assert cleaned.is_set()

    assert running.lines == ["release 1"]


@pytest.mark.promise("DISPATCH-84")
async def test_a_blocking_handler_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread that does not react is named in a WARNING, its deliveries given back; it can settle nothing more."""
    monkeypatch.setattr(dedicated, "PATIENCE", 0.05)
    begun, go_on = threading.Event(), threading.Event()

    async def handler(body: bytes, context: Context) -> None:
        if context.id == "1":
            begun.set()
            go_on.wait(10)

    async with rig(handler, *deliveries(4, lambda number: Key("0")), threads=by_key(2)) as running:
        await until(begun.is_set)
        await until(lambda: len(running.stream.taken) == 4)
        running.subscription.cancel()
        await running.finished()
        assert sorted(running.lines) == [f"release {number}" for number in range(1, 5)]
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert any(text.startswith("orders thread 0 did not react to its cancellation") for text in warnings)
        assert not any("orders thread 1" in text for text in warnings)
        go_on.set()
        await until(form_of(running)._threads[0].ended.is_set)
        await running.subscription.end()

    assert running.lines[4:] == ["ack 1"]  # refused by the delivery: it was given back
    assert any("settlement failed" in record.getMessage() for record in caplog.records)


@pytest.mark.promise("DISPATCH-84")
async def test_reacting_threads_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation takes no longer than the threads need that react."""
    monkeypatch.setattr(dedicated, "PATIENCE", 60.0)
    gates = Gates()
    async with rig(gates.handle, *deliveries(4), threads=2) as running:
        await until(lambda: len(gates.running) == 2)
        running.subscription.cancel()
        await running.finished()


@pytest.mark.promise("DISPATCH-84")
def test_a_blocking_handler_does_not_keep_the_process(tmp_path: Path) -> None:
    """A process whose handler blocks its thread for ever ends when the time for the stop is spent, with code 0."""
    import subprocess

    script = tmp_path / "blocking.py"
    script.write_text(
        textwrap.dedent(
            """
            import logging, time
            import anyio
            from pystream import PyStream, mount
            from pystream.memory import MemoryBroker

            logging.basicConfig(level=logging.WARNING, format="%(message)s")
            begun = []

            async def block(payload: bytes) -> None:
                begun.append(payload)
                time.sleep(3600)

            app = PyStream("blocking", shutdown_timeout=0.1)
            app.with_broker(MemoryBroker(), mount(block, "orders", threads=2))

            async def main() -> None:
                async with app.start() as running:
                    await running.publisher().publish(b"1", "orders")
                    while not begun:
                        await anyio.sleep(0.001)

            anyio.run(main)
            print("ended")
            """
        )
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr
    assert "orders thread 0 did not react to its cancellation within 1.5 s and is abandoned" in ended.stderr
    assert "Traceback" not in ended.stderr


async def _fail(body: bytes, context: Context) -> Outcome | None:
    if context.id.startswith("bad"):
        return retry_after(5)

    if context.id.startswith("fatal"):
        raise ValueError

    return None


@pytest.mark.promise("DISPATCH-85")
@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("threads", [1, by_key(2)], ids=str)
async def test_a_delivery_left_unsettled_takes_the_rest_of_its_ring_along(threads: Any, how: str) -> None:
    """A stop while an ordered thread retries in place gives back its ring, and what the feeder holds for it."""
    ids = ["bad-0", *(f"next{number}-0" for number in range(9))]
    count = 9 if threads == 1 else 10
    items = [ScriptedDelivery(id_, key=Key("0")) for id_ in ids[:count]]
    async with rig(_fail, items[0], source=IN_PLACE, threads=threads) as running:
        await until(lambda: form_of(running)._rings[0].hand is not None)
        running.feed(*items[1:])
        await until(lambda: len(running.stream.taken) == count)
        await still(form_of(running))
        assert running.lines == []
        running.subscription.stop() if how == "stop" else running.subscription.cancel()
        await running.finished()

    assert sorted(running.lines) == sorted(f"release {id_}" for id_ in ids[:count])


@pytest.mark.promise("DISPATCH-85")
async def test_without_an_order_nothing_follows() -> None:
    """A stop while one of several threads without keys retries in place has its ring handled."""
    items = [ScriptedDelivery("bad"), *deliveries(7)]
    async with rig(_fail, *items, source=IN_PLACE, threads=2) as running:
        await running.ends(4)
        await still(form_of(running))
        assert "release bad" not in running.lines
        running.subscription.stop()
        await running.finished()

    assert sorted(running.lines) == sorted(["release bad", *(f"ack {number}" for number in range(1, 8))])


@pytest.mark.promise("DISPATCH-85")
@pytest.mark.parametrize("threads", [1, by_key(2)], ids=str)
async def test_a_fail_fast_takes_the_rest_of_its_ring_along(threads: Any) -> None:
    """Behind a delivery that failed fast on an ordered thread nothing of it is handled, and the service fails."""
    gate = threading.Event()

    async def handler(body: bytes, context: Context) -> None:
        if context.id == "1":
            gate.wait(10)
            raise ValueError("no")

    policy = FailurePolicy(error=FAIL_FAST)
    items = deliveries(9, lambda number: Key("0"))
    async with rig(handler, *items, policy=policy, threads=threads) as running:
        await until(lambda: len(running.stream.taken) >= 8)
        gate.set()
        await running.finished()

    assert {line.split()[0] for line in running.lines} == {"release"}
    assert len(running.lines) == len(running.stream.taken)
    ((step, name, error),) = running.failures
    assert (step, name, str(error)) == ("handler", "orders", "no")


@pytest.mark.promise("DISPATCH-86")
async def test_a_thread_waits_for_what_follows_its_settlements() -> None:
    """After a stop a thread runs until its continuations have ended, and the drain waits for it."""
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    async def after() -> None:
        begun.set()
        await opened(go_on)
        done.set()

    async def handler(body: bytes) -> Outcome:
        return ack().and_after(after)

    async with rig(handler, ScriptedDelivery("1"), threads=1) as running:
        await until(begun.is_set)
        running.subscription.stop()
        with anyio.fail_after(10):
            await running.subscription.finished()

        (name,) = running.subscription.tracked
        assert name.endswith("after")
        with anyio.move_on_after(0.05) as early:
            await running.subscription.drained()

        assert early.cancelled_caught
        go_on.set()
        with anyio.fail_after(10):
            await running.subscription.drained()

        assert done.is_set()
        assert running.subscription.tracked == []


@pytest.mark.promise("DISPATCH-86")
async def test_a_thread_waits_for_its_timers() -> None:
    """A delivery that a thread holds for a delay is settled when the delay is over, and the drain waits for it."""

    async def handler(body: bytes) -> Outcome:
        return retry_after(0.1)

    async with rig(handler, ScriptedDelivery("1"), threads=1) as running:
        await until(lambda: bool(running.subscription.tracked))
        running.subscription.stop()
        with anyio.fail_after(10):
            await running.subscription.finished()
            assert running.lines == []
            await running.subscription.drained()

    assert [line.split()[0] for line in running.lines] == ["publish", "ack"]


@pytest.mark.promise("DISPATCH-87")
async def test_what_is_left_on_a_thread_is_cancelled_at_the_end() -> None:
    """The end of a subscription cancels the continuations that still run on its threads, and these end."""
    begun, cancelled = threading.Event(), threading.Event()

    async def after() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def handler(body: bytes) -> Outcome:
        return ack().and_after(after)

    async with rig(handler, ScriptedDelivery("1"), threads=1) as running:
        await until(begun.is_set)
        running.subscription.stop()
        await running.subscription.finished()
        await running.subscription.end()
        assert cancelled.is_set()
        assert form_of(running)._threads[0].ended.is_set()


@pytest.mark.promise("DISPATCH-87")
async def test_a_plain_task_ends_with_its_thread() -> None:
    """A task that a handler starts by itself on its thread is not waited for, and is gone when the thread has ended."""
    ended = threading.Event()
    kept: list[object] = []

    async def forever() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            ended.set()
            raise

    async def handler(body: bytes) -> None:
        import contextvars

        async def quiet() -> None:
            try:
                await forever()
            except anyio.get_cancelled_exc_class():
                raise

        kept.append(current_loop().spawn(quiet, "plain", contextvars.copy_context()))
        await anyio.sleep(0.001)

    async with rig(handler, ScriptedDelivery("1"), threads=1) as running:
        await running.ends(1)
        assert not ended.is_set()
        await running.stop()
        await until(form_of(running)._threads[0].ended.is_set)
        assert ended.is_set()
