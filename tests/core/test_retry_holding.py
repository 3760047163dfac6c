"""Deliveries that the runtime itself holds for a delay, and the bound of all that is held."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from pystream import (
    Context,
    Outcome,
    PyStream,
    RunningApp,
    ServiceState,
    Settled,
    ack,
    by_key,
    harness,
    mount,
    retry_after,
)
from pystream.errors import PublishError
from pystream.memory import MemoryBroker
from pystream.protocols import Clock
from pystream_testing.conformance.brokers import HONEST

from tests.core.rig import Rig, eventually, idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.anyio

COUNT = "x-pystream-retry-count"
FORMS = [
    pytest.param({}, id="default"),
    pytest.param({"workers": 3}, id="workers=3"),
    pytest.param({"workers": by_key(2)}, id="by_key(2)"),
]


def holding(*delayed: str, delay: float = 5.0) -> Callable[..., Any]:
    """A handler that asks for a delay for some, and acknowledges the others."""

    async def handler(body: bytes, context: Context) -> Outcome | None:
        return retry_after(delay) if context.id in delayed else None

    return handler


# One timer.


@pytest.mark.promise("RETRY-40")
@pytest.mark.parametrize("form", FORMS)
async def test_while_a_delivery_is_held_its_worker_is_free(form: dict[str, Any]) -> None:
    """A delay that the broker does not keep is kept by a timer: others are handled, and it stays unsettled."""
    items = [ScriptedDelivery(str(number), key="k", count=1) for number in range(4)]
    async with rig(holding("0", "1"), *items, **form) as running:
        await running.ends(2)
        assert running.lines == ["ack 2", "ack 3"]
        running.clock.advance(4.99)
        await idle()
        assert [item.ends for item in items[:2]] == [[], []]
        running.clock.advance(0.01)
        await running.ends(4)

    assert sorted(running.lines[2:]) == ["requeue 0", "requeue 1"]


@pytest.mark.promise("RETRY-40", "RETRY-26")
async def test_what_is_not_counted_is_copied_once_the_delay_is_over() -> None:
    """A broker that does not count gets a copy then, and no sooner, with the count raised."""
    delivery = ScriptedDelivery("0", headers={COUNT: b"1"})
    async with rig(holding("0"), delivery) as running:
        await running.timer()
        running.clock.advance(4.99)
        await idle()
        assert running.lines == []
        running.clock.advance(0.01)
        await running.ends(1)

    assert running.lines == ["publish orders {}", "ack 0"]
    assert running.broker.sent[0].headers == {COUNT: b"2"}


@pytest.mark.promise("RETRY-40", "RETRY-22")
async def test_with_a_cap_what_is_not_counted_is_held_even_where_the_broker_could() -> None:
    """The broker's delay would lose the count, and the cap would never come."""
    async with rig(holding("0"), DelayableDelivery("0"), max_attempts=9) as running:
        await running.timer()
        running.clock.advance(5)
        await running.ends(1)

    assert running.lines == ["publish orders {}", "ack 0"]


@pytest.mark.promise("RETRY-40", "RETRY-25")
async def test_a_copy_that_fails_after_the_delay_is_held_again() -> None:
    """Held for its delay and not published, the original is held for the backoff, then requeued."""
    async with rig(holding("0"), ScriptedDelivery("0")) as running:
        running.broker.publish_errors.append(PublishError("no room"))
        await running.timer()
        running.clock.advance(5)
        await eventually(lambda: "unpublished orders" in running.lines)
        await running.timer()
        running.clock.advance(0.79)
        await idle()
        assert running.lines == ["unpublished orders"]
        running.clock.advance(0.42)
        await running.ends(1)

    assert running.lines == ["unpublished orders", "requeue 0"]


def odd(name: str) -> Any:
    """A broker of the conformance package that is odd and honest."""
    return next(row for row in HONEST if row.name == name).broker()


NUMBER: contextvars.ContextVar[int] = contextvars.ContextVar("NUMBER", default=0)


@pytest.mark.promise("RETRY-40", "SETTLE-4")
async def test_what_follows_the_settlement_follows_the_delay() -> None:
    """Hooks and continuations come after the delay, once, and see the handler's context variables."""
    events: list[Settled] = []
    calls: list[tuple[str, int]] = []

    async def follow() -> None:
        calls.append(("task", NUMBER.get()))

    async def handler(body: bytes, context: Context) -> Outcome:
        NUMBER.set(int(context.id))
        context.after("retry", lambda: calls.append(("plain", NUMBER.get())))
        return retry_after(5).and_after(follow)

    async with rig(handler, ScriptedDelivery("7", count=1), hooks=(events.append,)) as running:
        await running.timer()
        await idle()
        assert (calls, events) == ([], [])
        running.clock.advance(5)
        await running.ends(1)
        await eventually(lambda: len(calls) == 2)

    assert sorted(calls) == [("plain", 7), ("task", 7)]
    (event,) = events
    assert (event.outcome.kind, event.outcome.delay, event.duration) == ("retry", 5, 5)


@pytest.mark.promise("RETRY-40", "SETTLE-5")
async def test_timers_take_no_room_of_tracked_tasks_and_make_none() -> None:
    """More deliveries may be held than tasks may follow settlements, and afterwards that bound is what it was."""
    done = anyio.Event()
    followed: list[str] = []

    async def follow(name: str) -> None:
        followed.append(name)
        await done.wait()

    async def handler(body: bytes, context: Context) -> Outcome:
        return retry_after(5) if context.id.isdigit() else ack().and_after(follow, context.id)

    items = [ScriptedDelivery(str(number), count=1) for number in range(5)]
    async with rig(handler, *items, max_tracked=1) as running:
        await eventually(lambda: running.clock.timers == 5)
        running.clock.advance(5)
        await running.ends(5)
        running.feed(ScriptedDelivery("a"), ScriptedDelivery("b"))
        await running.ends(6)
        await idle()
        assert (followed, running.stream.ends) == (["a"], 6)
        done.set()
        await running.ends(7)


# The bound.


def reason(limit: int) -> str:
    return (
        f"orders: {limit} deliveries are held for a delay, as many as max_delayed allows; "
        "nothing is taken until one of them is due"
    )


async def _full(running: Rig, taken: int) -> None:
    await eventually(lambda: len(running.stream.taken) == taken)
    await idle()
    assert len(running.stream.taken) == taken


@pytest.mark.promise("RETRY-41")
@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_bound_of_timers_is_exact(limit: int) -> None:
    """With one less than the bound the loop polls; with the bound it does not, until one fires."""

    async def handler(body: bytes, context: Context) -> Outcome:
        return retry_after(1 + int(context.id))

    items = [ScriptedDelivery(str(number), count=1) for number in range(limit + 2)]
    async with rig(handler, *items[: limit - 1], max_delayed=limit) as running:
        await _full(running, limit - 1)
        assert running.board.view.reason is None
        running.feed(*items[limit - 1 :])
        await _full(running, limit)
        assert running.board.view.reason == reason(limit)
        running.clock.advance(0.99)
        await _full(running, limit)
        running.clock.advance(0.01)
        await _full(running, limit + 1)
        assert running.board.view.reason == reason(limit)


@pytest.mark.promise("RETRY-41")
async def test_the_health_recovers_with_the_first_that_fires() -> None:
    """Below the bound again, the reason is gone and what waits is taken."""
    items = [ScriptedDelivery(str(number), count=1) for number in range(3)]
    async with rig(holding("0", "1"), *items, max_delayed=2) as running:
        await _full(running, 2)
        assert running.board.view.reason == reason(2)
        running.clock.advance(5)
        await running.ends(3)
        assert running.board.view.reason is None

    assert sorted(running.lines) == ["ack 2", "requeue 0", "requeue 1"]


@pytest.mark.promise("RETRY-41")
@pytest.mark.parametrize("form", FORMS)
async def test_a_form_that_waits_for_the_stream_stops_too(form: dict[str, Any]) -> None:
    """On every form nothing more is taken once the bound is reached, and all is handled in the end."""
    items = [ScriptedDelivery(str(number), key=str(number), count=1) for number in range(20)]
    async with rig(holding(*map(str, range(20)), delay=3), max_delayed=4, **form) as running:
        for item in items:
            running.feed(item)
            await idle(5)

        taken = len(running.stream.taken)
        assert 4 <= taken <= 4 + 5, "what the form had in hand may come on top"
        while running.stream.ends < 20:
            running.clock.advance(3)
            await idle()


@pytest.mark.promise("RETRY-41")
@pytest.mark.parametrize("form", [{}, {"workers": 2}], ids=str)
async def test_batches_stop_at_the_bound_too(form: dict[str, Any]) -> None:
    """A batch that is being filled when the bound is reached is handled in its time, and then nothing is taken."""
    handled: list[int] = []

    async def handler(bodies: list[bytes]) -> list[Outcome]:
        handled.append(len(bodies))
        return [retry_after(5) for _ in bodies]

    items = [ScriptedDelivery(str(number), count=1) for number in range(9)]
    async with rig(handler, *items, batch=2, batch_wait=1, max_delayed=2, **form) as running:
        await eventually(lambda: running.board.view.reason is not None)
        await idle()
        most = 2 * form.get("workers", 1)
        assert 2 <= len(running.stream.taken) <= most + 1
        while running.stream.ends < 9:
            running.clock.advance(1)
            await idle()

    assert sum(handled) == 9
    assert max(handled) == 2


@pytest.mark.promise("RETRY-41")
async def test_what_the_plugin_holds_counts_with_the_timers() -> None:
    """One bound for both; a plugin that lets go is noticed within a tenth of a second."""

    async def handler(body: bytes, context: Context) -> Outcome:
        running.stream.delayed += 1 if context.id.startswith("p") else 0
        return retry_after(50)

    plugin = [DelayableDelivery(f"p{number}", count=1) for number in range(2)]
    async with rig(handler, *plugin, ScriptedDelivery("r", count=1), max_delayed=4) as running:
        await _full(running, 3)
        assert running.board.view.reason is None
        running.feed(DelayableDelivery("p3", count=1), ScriptedDelivery("late", count=1))
        await _full(running, 4)
        assert running.board.view.reason == reason(4)
        running.stream.delayed -= 1
        running.clock.advance(0.1)
        await _full(running, 5)


@pytest.mark.promise("RETRY-41", "STOP-4")
async def test_a_stop_ends_the_wait_for_room() -> None:
    """A loop that takes nothing because of the bound stops like any other."""
    items = [ScriptedDelivery(str(number), count=1) for number in range(3)]
    async with rig(holding("0"), *items, max_delayed=1) as running:
        await _full(running, 1)
        await running.stop()

    assert running.lines == ["release 0"]


@pytest.mark.promise("RETRY-41")
async def test_a_broken_stream_and_a_full_bound_do_not_hide_each_other() -> None:
    """While the bound is reached its reason is shown; afterwards that of the stream, until it works."""
    async with rig(holding("0"), ScriptedDelivery("0", count=1), max_delayed=1) as running:
        await _full(running, 1)
        running.feed(PublishError("cut"), ScriptedDelivery("1", count=1))
        await idle()
        assert running.board.view.reason == reason(1)
        running.clock.advance(5)
        await eventually(lambda: running.board.view.reason == "orders: the stream failed: cut")
        running.clock.advance(0.1)
        await running.ends(2)
        assert running.board.view.reason is None


@asynccontextmanager
async def service(
    handler: Callable[..., Any], clock: Clock, shutdown_timeout: float | None = None, **settings: Any
) -> AsyncIterator[RunningApp]:
    app = PyStream("shop", shutdown_timeout=shutdown_timeout).with_broker(
        MemoryBroker(), mount(handler, "orders", **settings)
    )
    async with harness.start(app, clock=lambda: clock) as harnessed:
        yield harnessed.running


def _state(running: RunningApp) -> ServiceState:
    return running.health.state


@pytest.mark.promise("RETRY-41")
@pytest.mark.parametrize("settings", [{}, {"workers": 4}], ids=str)
async def test_by_default_a_thousand_may_be_held(settings: dict[str, Any]) -> None:
    """On the memory broker 999 delayed deliveries change nothing; the thousandth stops it until one is due."""
    seen: list[int] = []

    async def handler(body: bytes) -> Outcome | None:
        seen.append(int(body))
        return retry_after(60 if body == b"0" else 90) if len(seen) <= 1000 else None

    clock = ManualClock()
    async with service(handler, clock, **settings) as running:
        out = running.publisher()
        for number in range(999):
            await out.publish(b"%d" % number, "orders")

        await eventually(lambda: len(seen) == 999)
        await idle()
        assert _state(running) is ServiceState.RUNNING
        for number in (999, 1000, 1001):
            await out.publish(b"%d" % number, "orders")

        await eventually(lambda: len(seen) == 1000)
        await idle()
        assert seen == list(range(1000))
        assert _state(running) is ServiceState.DEGRADED
        assert running.health.reason == reason(1000)
        clock.advance(59.9)
        await idle()
        assert len(seen) == 1000
        clock.advance(0.1)
        await idle()
        clock.advance(0.1)
        await eventually(lambda: len(seen) == 1003)
        assert sorted(seen[1000:]) == [0, 1000, 1001]
        assert _state(running) is ServiceState.RUNNING


# The stop.


@pytest.mark.promise("RETRY-42")
async def test_a_stop_waits_for_the_timers() -> None:
    """Without a budget a stop waits until every held delivery is due, and settles it."""
    async with rig(holding("0"), ScriptedDelivery("0", count=1)) as running:
        await running.timer()
        running.subscription.stop()
        await running.subscription.finished()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.tracker.drained)
            await idle()
            assert running.lines == []
            running.clock.advance(5)

    assert running.lines == ["requeue 0"]


@pytest.mark.promise("RETRY-42")
async def test_what_is_held_when_it_is_given_back_is_released_at_once() -> None:
    """Before the subscriber is closed the timers are cancelled and their deliveries released, none of them settled."""
    items = [ScriptedDelivery(str(number), count=1) for number in range(3)]
    async with rig(holding("0", "1", "2"), *items) as running:
        await eventually(lambda: running.clock.timers == 3)
        assert running.subscription.give_back_held() == 3
        assert sorted(running.lines) == ["release 0", "release 1", "release 2"]
        await running.tracker.drained()
        assert running.clock.timers == 0
        running.feed(ScriptedDelivery("0", count=1))
        await running.ends(4)

    assert running.lines[-1] == "release 0"


@pytest.mark.promise("RETRY-42", "STOP-9")
@pytest.mark.parametrize("how", ["timeout", "abort"])
async def test_a_spent_budget_gives_back_what_is_held(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """What timers still hold when time is spent goes back before the brokers close, with one WARNING of the counts."""
    broker = odd("no-delay")

    async def handler(body: bytes) -> Outcome:
        return retry_after(3600)

    clock = ManualClock()
    app = PyStream("shop", shutdown_timeout=0.2).with_broker(broker, mount(handler, "orders"))
    with anyio.fail_after(5):
        async with harness.start(app, clock=lambda: clock) as harnessed:
            out = harnessed.running.publisher()
            for _ in range(3):
                await out.publish(b"1", "orders")

            await eventually(lambda: clock.timers == 3)
            if how == "abort":
                harnessed._service.abort()

    assert harnessed.failure is None
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    (text,) = [warning for warning in warnings if "held for a delay" in warning]
    why = "shutdown was aborted" if how == "abort" else "time for the shutdown was spent"
    assert text == f"shop: held for a delay when the {why}, and given back unsettled (orders: 3)"


@pytest.mark.promise("RETRY-42")
async def test_a_stop_before_its_bound_settles_what_is_held() -> None:
    """With real time: the shutdown goes on until the timers have fired, and nothing is given back."""
    broker = odd("no-delay")
    events: list[Settled] = []

    async def handler(body: bytes) -> Outcome:
        return retry_after(0.05)

    app = PyStream("shop").with_broker(broker, mount(handler, "orders"))
    app.post_settle(events.append)
    with anyio.fail_after(5):
        async with app.start() as running:
            await running.publisher().publish(b"1", "orders")
            await eventually(lambda: running.health.state is ServiceState.RUNNING)
            await idle()

    assert [event.outcome for event in events] == [retry_after(0.05)]


@pytest.mark.promise("RETRY-40")
async def test_held_on_a_thread_of_its_own() -> None:
    """On dedicated threads the timers are the thread's own, and the bound is shared by all of them."""
    items = [ScriptedDelivery(str(number), count=1) for number in range(6)]
    async with rig(holding(*"012345", delay=0.02), *items, threads=2, max_delayed=2) as running:
        await running.ends(6)

    assert sorted(running.lines) == [f"requeue {number}" for number in range(6)]


@pytest.mark.promise("RETRY-42")
async def test_on_threads_too_it_is_given_back() -> None:
    """What the timers of dedicated threads hold is released when the time of the stop is spent."""
    items = [ScriptedDelivery(str(number), count=1) for number in range(2)]
    async with rig(holding("0", "1", delay=3600), *items, threads=2) as running:
        await eventually(lambda: running.subscription._delays.held == 2)
        await running.stop()

    assert sorted(running.lines) == ["release 0", "release 1"]


# In place nothing is held.


@pytest.mark.promise("RETRY-21")
async def test_in_place_nothing_is_held() -> None:
    """A source that retries in place keeps the delivery in the handling task; the bound is not touched."""
    source = ScriptedSource(retry="in_place")
    async with rig(holding("0"), ScriptedDelivery("0"), ScriptedDelivery("1"), source=source, max_delayed=1) as running:
        await running.timer()
        assert running.board.view.reason is None
        assert len(running.stream.taken) == 1

    assert running.lines == ["release 0"]
