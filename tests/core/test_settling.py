"""One settlement or one release for each delivery, what follows it, and what may go wrong with it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pystream import Context, Outcome, ack, drop, retry, retry_after
from pystream.errors import SettlementTimeout, StrayCancellation, SubscriptionEnded
from pystream.hookspecs import Settled

from tests.core.rig import eventually, idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource


async def nothing(body: bytes) -> None: ...


async def suspending(body: bytes) -> None:
    await anyio.lowlevel.checkpoint()


# A settlement that fails.


@pytest.mark.promise("SETTLE-1", "SETTLE-6")
@pytest.mark.anyio
@pytest.mark.parametrize("error", [RuntimeError("no link"), SettlementTimeout("not confirmed")], ids=["other", "ours"])
@pytest.mark.parametrize(
    ("outcome", "attempt"),
    [(ack(), "ack"), (retry(), "requeue"), (retry_after(1), "retry_after"), (drop(), "reject")],
    ids=["ack", "retry", "retry_after", "drop"],
)
async def test_a_failing_settlement_is_a_warning_and_the_loop_goes_on(
    outcome: Outcome, attempt: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is attempted once, logged, counted in the health, and the next delivery is handled."""

    async def handler(body: bytes) -> Outcome:
        return outcome

    async with rig(handler, DelayableDelivery("1", count=1, refusal=error), DelayableDelivery("2", count=1)) as running:
        await running.ends(2)
        assert running.board.view.settlement_failures == 1

    assert running.lines == [f"refused {attempt} 1", f"{attempt} 2"]
    assert running.failures == []
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == f"orders: settlement failed: message 1, {outcome!r}: {error}"


# Cancellations.


@pytest.mark.promise("SETTLE-9")
@pytest.mark.anyio
async def test_a_cancelled_handler_settles_nothing() -> None:
    """A cancellation gives the delivery back, lets the handler clean up, and is no failure."""
    cleaned: list[int] = []

    async def handler(body: bytes) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(1)

    async with rig(handler, ScriptedDelivery("1"), ScriptedDelivery("2")) as running:
        await eventually(lambda: bool(running.stream.taken))
        running.subscription.cancel()
        await running.finished()

    assert (running.lines, cleaned, running.failures) == (["release 1"], [1], [])


@pytest.mark.promise("SETTLE-9")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_cancellation_that_nobody_asked_for_is_a_failure(anyio_backend: Any, workers: int) -> None:
    """A future cancelled under the handler, or a bare CancelledError, fails the delivery and not the loop."""
    if anyio_backend[0] == "trio":
        pytest.skip("trio's cancellations cannot be made but by a cancelled scope")

    import asyncio

    errors: list[Exception] = []

    async def handler(body: bytes) -> None:
        if body == b"bare":
            raise asyncio.CancelledError

        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        await future

    from pystream import FailurePolicy

    def judge(error: Exception, attempt: int) -> Outcome:
        errors.append(error)
        return drop()

    items = [ScriptedDelivery("1", b"bare"), ScriptedDelivery("2", b"future"), ScriptedDelivery("3", b"bare")]
    async with rig(handler, *items, policy=FailurePolicy(error=judge), workers=workers) as running:
        await running.ends(3)

    assert sorted(running.lines) == ["reject 1", "reject 2", "reject 3"]
    assert [type(error) for error in errors] == [StrayCancellation] * 3
    assert str(errors[0]) == "the handler of orders was cancelled by nobody"
    assert isinstance(errors[0].__cause__, asyncio.CancelledError)


@pytest.mark.promise("SETTLE-9")
@pytest.mark.anyio
async def test_an_exit_is_no_failure_of_the_handler() -> None:
    """A BaseException leaves the delivery unsettled and ends the loop, which says so."""

    class Exit(BaseException):
        pass

    async def handler(body: bytes) -> None:
        raise Exit

    async with rig(handler, ScriptedDelivery("1"), ScriptedDelivery("2")) as running:
        await running.finished()
        await eventually(lambda: bool(running.loop_errors))
        (error,) = running.loop_errors
        running.loop_errors.clear()

    assert isinstance(error, Exit)
    assert running.lines == ["release 1"]


# post_settle.


@pytest.mark.promise("SETTLE-7")
@pytest.mark.anyio
@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
async def test_post_settle_is_told_of_every_settlement(asynchronous: bool) -> None:
    """The event tells subscription, outcome, attempt, duration and error, after the attempt to settle."""
    events: list[tuple[Settled, int]] = []

    def plain(event: Settled) -> None:
        events.append((event, len(running.lines)))

    async def coroutine(event: Settled) -> None:
        plain(event)

    async def handler(body: bytes, context: Context) -> Outcome | None:
        running.clock.advance(float(body))
        return retry_after(7) if context.id == "2" else None

    error = RuntimeError("no")
    items = [
        DelayableDelivery("1", b"0.5"),
        DelayableDelivery("2", b"2", count=3),
        DelayableDelivery("3", b"0", refusal=error),
    ]
    async with rig(handler, hooks=(coroutine if asynchronous else plain,)) as running:
        for number, item in enumerate(items):
            running.feed(item)
            await eventually(lambda number=number: len(events) > number)  # type: ignore[misc]  # bound early

    assert [event for event, _ in events] == [
        Settled("orders", ack(), 1, 0.5, None),
        Settled("orders", retry_after(7), 3, 2.0, None),
        Settled("orders", ack(), 1, 0.0, error),
    ]
    assert [lines for _, lines in events] == [1, 2, 3]


@pytest.mark.promise("SETTLE-7")
@pytest.mark.anyio
async def test_post_settle_counts_runs_in_place() -> None:
    """In place the event comes once, for the last run, with the attempts and the time of all."""
    events: list[Settled] = []
    runs: list[int] = []

    async def handler(body: bytes) -> Outcome | None:
        runs.append(1)
        return retry_after(5) if len(runs) < 3 else None

    source = ScriptedSource(retry="in_place")
    async with rig(handler, DelayableDelivery("1", count=2), source=source, hooks=(events.append,)) as running:
        for _ in range(2):
            await running.timer()
            running.clock.advance(5)
            await idle()

        await running.ends(1)

    assert events == [Settled("orders", ack(), 4, 10.0, None)]


@pytest.mark.promise("SETTLE-7")
@pytest.mark.anyio
async def test_post_settle_is_not_told_of_what_was_left_unsettled() -> None:
    """A delivery given back by a stop has no event."""
    events: list[Settled] = []

    async def handler(body: bytes) -> Outcome:
        return retry_after(5)

    async with rig(handler, ScriptedDelivery("1"), hooks=(events.append,)) as running:
        await running.timer()
        await running.stop()

    assert (running.lines, events) == (["release 1"], [])


@pytest.mark.promise("SETTLE-7")
@pytest.mark.anyio
@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
async def test_a_failing_hook_changes_nothing(asynchronous: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What a hook raises is logged; the other hooks and the next deliveries are not affected."""
    events: list[Settled] = []

    def broken(event: Settled) -> None:
        raise ValueError

    async def broken_too(event: Settled) -> None:
        raise ValueError

    hook = broken_too if asynchronous else broken
    async with rig(nothing, ScriptedDelivery("1"), ScriptedDelivery("2"), hooks=(hook, events.append)) as running:
        await running.ends(2)

    assert running.lines == ["ack 1", "ack 2"]
    assert len(events) == 2
    assert caplog.records[0].getMessage().startswith("orders: callback failed: ")


@pytest.mark.promise("SETTLE-4", "SETTLE-7")
@pytest.mark.anyio
async def test_the_continuation_starts_before_the_hooks() -> None:
    """After the settlement come the continuation, then the hooks in their order."""
    order: list[str] = []

    async def handler(body: bytes) -> Outcome:
        return ack().and_after(order.append, "continuation")

    hooks = (lambda: order.append("first"), lambda: order.append("second"))
    async with rig(handler, ScriptedDelivery("1"), hooks=hooks) as running:
        await running.ends(1)
        await idle()

    assert order == ["continuation", "first", "second"]


# Tracked tasks.


@pytest.mark.promise("SETTLE-8")
@pytest.mark.anyio
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("by", ["continuation", "hook"])
async def test_tracked_tasks_are_bounded(limit: int, by: str) -> None:
    """The loop waits with the settlement once so many deliveries have tasks running, not one sooner or later."""
    gate = anyio.Event()

    async def wait(*_: Any) -> None:
        await gate.wait()

    async def hook(event: Settled) -> None:
        await gate.wait()

    async def handler(body: bytes) -> Outcome | None:
        return ack().and_after(wait) if by == "continuation" else None

    hooks = (hook,) if by == "hook" else ()
    items = [ScriptedDelivery(str(number)) for number in range(1, limit + 3)]
    async with rig(handler, *items, hooks=hooks, max_tracked=limit) as running:
        await running.ends(limit)
        await idle()
        assert len(running.lines) == limit
        assert len(running.stream.taken) == limit + 1
        assert len(running.tracker.running) == limit
        gate.set()
        await running.ends(limit + 2)

    assert running.lines == [f"ack {number}" for number in range(1, limit + 3)]


@pytest.mark.promise("SETTLE-8")
@pytest.mark.anyio
async def test_plain_functions_take_no_place() -> None:
    """What is called in line is not bounded: no place is reserved for it."""

    async def handler(body: bytes) -> Outcome:
        return ack().and_after(lambda: None)

    gate = anyio.Event()
    async with rig(handler, max_tracked=1, hooks=(lambda: None,)) as running:
        await running.tracker.reserve()
        running.feed(ScriptedDelivery("1"), ScriptedDelivery("2"))
        await running.ends(2)
        gate.set()

    assert running.lines == ["ack 1", "ack 2"]


@pytest.mark.promise("SETTLE-8")
@pytest.mark.anyio
async def test_a_delivery_that_waits_for_a_place_is_given_back_by_a_cancellation() -> None:
    """While it waits for its place it is unsettled, and goes back as a whole."""

    async def wait() -> None:
        await anyio.sleep_forever()

    async def handler(body: bytes) -> Outcome:
        return ack().and_after(wait)

    async with rig(handler, max_tracked=1) as running:
        await running.tracker.reserve()
        running.feed(ScriptedDelivery("1"))
        await eventually(lambda: bool(running.stream.taken))
        await idle()
        running.subscription.cancel()
        await running.finished()

    assert running.lines == ["release 1"]


@pytest.mark.promise("SETTLE-8")
@pytest.mark.anyio
async def test_two_tasks_of_one_delivery_take_one_place() -> None:
    """A place belongs to a delivery, and is free when the last of its tasks has ended."""
    first, second = anyio.Event(), anyio.Event()

    async def hook(event: Settled) -> None:
        await first.wait()

    async def handler(body: bytes) -> Outcome | None:
        return ack().and_after(second.wait)

    async with rig(handler, *(ScriptedDelivery(str(n)) for n in (1, 2)), hooks=(hook,), max_tracked=1) as running:
        await running.ends(1)
        first.set()
        await idle()
        assert running.lines == ["ack 1"]
        second.set()
        await running.ends(2)

    assert running.lines == ["ack 1", "ack 2"]


# The stream.


@pytest.mark.promise("DISPATCH-7")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", [1, 3])
async def test_a_broken_stream_is_tried_again_with_backoff(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """Errors of the stream wait 0.1 s doubling to 5 s, degrade the health, and one good delivery ends it."""
    async with rig(nothing, workers=workers) as running:
        for seconds in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
            running.feed(RuntimeError("no link"))
            await running.timer()
            assert running.board.view.reason == "orders: the stream failed: no link"
            running.clock.advance(seconds - 0.01)
            await idle()
            assert running.clock.timers == 1
            running.clock.advance(0.01)
            await eventually(lambda: running.clock.timers == 0)

        running.feed(ScriptedDelivery("1"))
        await running.ends(1)
        assert running.board.view.reason is None
        running.feed(RuntimeError("again"))
        await running.timer()
        running.clock.advance(0.1)
        await eventually(lambda: running.clock.timers == 0)

    assert running.lines == ["ack 1"]
    assert running.failures == []
    assert caplog.records[0].getMessage() == "orders: stream failed: no link; next try in 0.1 s"


@pytest.mark.promise("DISPATCH-7")
@pytest.mark.anyio
@pytest.mark.parametrize("fatal", [True, False], ids=["fail", "log"])
async def test_the_end_of_a_stream_is_never_silent(fatal: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An ended stream ends its loop, as a failure of the service or with an ERROR."""
    end = SubscriptionEnded("deleted")
    async with rig(nothing, ScriptedDelivery("1"), end, fatal_end=fatal) as running:
        await running.finished()

    assert running.lines == ["ack 1"]
    assert running.failures == ([("subscription", "orders", end)] if fatal else [])
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ([] if fatal else ["orders: the subscription has ended: deleted"])


@pytest.mark.promise("DISPATCH-7")
@pytest.mark.anyio
async def test_an_end_during_a_stop_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """What the stop itself brings about is told to nobody: neither an end nor an error of the stream."""
    for what in (SubscriptionEnded("closed"), RuntimeError("closed")):
        async with rig(nothing) as running:
            await idle()
            running.feed(what)
            await running.stop()

        assert (running.failures, caplog.records) == ([], [])
