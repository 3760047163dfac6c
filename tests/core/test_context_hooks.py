"""What a handler or a layer leaves in its context, to be called after the settlement."""

from __future__ import annotations

from typing import Any, get_args

import anyio
import pytest
from pystream import Context, FailurePolicy, Outcome, ack, by_key, dead_letter, drop, retry, retry_after
from pystream.errors import ConfigurationError
from pystream.hookspecs import Settled
from pystream.layers import CallNext
from pystream.outcomes import OutcomeKind

from tests.core.rig import eventually, idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio

FORMS = [{}, {"workers": 2}, {"workers": by_key(2)}]
KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)


def leave_all(ctx: Context, called: list[str]) -> None:
    """Leave one function for each kind, and one for all."""
    ctx.after_settle(called.append, "settle")
    ctx.after_ack(called.append, "after_ack")
    for kind in KINDS:
        ctx.after(kind, called.append, kind)


@pytest.mark.promise("SETTLE-20")
@pytest.mark.parametrize("form", FORMS, ids=repr)
@pytest.mark.parametrize(
    ("outcome", "line", "expected"),
    [
        (None, "ack 1", ["settle", "after_ack", "ack"]),
        (ack(), "ack 1", ["settle", "after_ack", "ack"]),
        (retry(), "requeue 1", ["settle", "retry"]),
        (retry_after(3), "retry_after 1", ["settle", "retry"]),
        (drop(), "reject 1", ["settle", "drop"]),
        (dead_letter("no stock"), "ack 1", ["settle", "dead_letter"]),
    ],
    ids=repr,
)
async def test_what_was_left_for_the_kind_is_called(
    outcome: Outcome | None, line: str, expected: list[str], form: dict[str, Any]
) -> None:
    """`after_ack`, `after(kind)` and `after_settle` all add up, and are called after the settlement."""
    called: list[str] = []

    async def handler(body: bytes, ctx: Context) -> Outcome | None:
        leave_all(ctx, called)
        ctx.after_settle(lambda: called.append(running.lines[-1]))
        return outcome

    async with rig(handler, DelayableDelivery("1", count=1), dead_letter="dead", **form) as running:
        await running.ends(1)
        await idle()

    assert called == [*expected, line]


@pytest.mark.promise("SETTLE-20")
async def test_the_kind_is_that_of_what_was_done() -> None:
    """A failure that became a retry, and a retry at the cap that became a rejection, count as what they became."""
    called: list[str] = []

    async def handler(body: bytes, ctx: Context) -> Outcome | None:
        for kind in KINDS:
            ctx.after(kind, called.append, f"{ctx.id} {kind}")

        if body == b"raise":
            raise KeyError

        return retry()

    items = [DelayableDelivery("1", b"raise", count=1), DelayableDelivery("2", count=2)]
    async with rig(handler, *items, max_attempts=2, policy=FailurePolicy(error=retry())) as running:
        await running.ends(2)
        await idle()

    assert running.lines == ["requeue 1", "reject 2"]
    assert called == ["1 retry", "2 drop"]


@pytest.mark.promise("SETTLE-20")
async def test_an_unknown_kind_is_refused() -> None:
    """At the call, naming the kinds there are."""
    ctx: Any = Context(ScriptedDelivery("1"), "orders")
    with pytest.raises(ConfigurationError) as refusal:
        ctx.after("nack", print)

    assert str(refusal.value) == "after('nack'): there is no such outcome; give ack, retry, drop, dead_letter"


@pytest.mark.promise("SETTLE-21")
@pytest.mark.parametrize("form", FORMS, ids=repr)
async def test_the_order_of_what_follows(form: dict[str, Any]) -> None:
    """The outcome's continuation, then what was left, in the order of the calls, then `post_settle`."""
    order: list[str] = []

    async def outer(ctx: Context, call_next: CallNext) -> Outcome:
        ctx.after_settle(order.append, "outer, before")
        outcome = await call_next(ctx)
        ctx.after_ack(order.append, "outer, after")
        return outcome

    async def handler(body: bytes, ctx: Context) -> Outcome:
        ctx.after_settle(order.append, "first")
        ctx.after_ack(order.append, "second")
        return ack().and_after(order.append, "continuation")

    hooks = (lambda: order.append("hook"),)
    async with rig(handler, ScriptedDelivery("1"), layers=[outer], hooks=hooks, **form) as running:
        await running.ends(1)
        await idle()

    assert order == ["continuation", "outer, before", "first", "second", "outer, after", "hook"]


@pytest.mark.promise("SETTLE-22")
async def test_nothing_follows_a_delivery_left_unsettled() -> None:
    """A stop or a fail-fast that gives a delivery back calls nothing."""
    called: list[str] = []

    async def handler(body: bytes, ctx: Context) -> None:
        leave_all(ctx, called)
        if body == b"fail":
            raise KeyError

        await anyio.sleep_forever()

    async with rig(handler, ScriptedDelivery("1")) as running:
        await eventually(lambda: bool(running.stream.taken))
        await idle()
        running.subscription.cancel()
        await running.finished()

    assert (running.lines, called) == (["release 1"], [])
    async with rig(handler, ScriptedDelivery("1", b"fail"), policy=FailurePolicy.strict()) as running:
        await running.finished()

    assert (running.lines, called) == (["release 1"], [])


@pytest.mark.promise("SETTLE-22")
async def test_they_are_called_once_also_if_the_settlement_fails() -> None:
    """The attempt counts: a settlement that the broker did not take is followed all the same, once."""
    called: list[str] = []

    async def handler(body: bytes, ctx: Context) -> None:
        ctx.after_ack(called.append, ctx.id)

    items = [ScriptedDelivery("1", refusal=RuntimeError("no link")), ScriptedDelivery("2")]
    async with rig(handler, *items) as running:
        await running.ends(2)
        await idle()

    assert running.lines == ["refused ack 1", "ack 2"]
    assert called == ["1", "2"]


@pytest.mark.promise("SETTLE-22")
async def test_what_is_left_too_late_is_not_called() -> None:
    """A function left once the settlement was made, by one that follows it, has no settlement to follow."""
    called: list[str] = []

    async def handler(body: bytes, ctx: Context) -> None:
        ctx.after_settle(ctx.after_settle, called.append, "late")

    async with rig(handler, ScriptedDelivery("1")) as running:
        await running.ends(1)
        await idle()

    assert (running.lines, called) == (["ack 1"], [])


@pytest.mark.promise("SETTLE-23")
@pytest.mark.parametrize("limit", [1, 3])
async def test_coroutine_functions_are_tracked(limit: int) -> None:
    """They run as tasks within the bound, a place reserved before the settlement."""
    gate = anyio.Event()

    async def handler(body: bytes, ctx: Context) -> None:
        ctx.after_ack(gate.wait)

    items = [ScriptedDelivery(str(number)) for number in range(1, limit + 3)]
    async with rig(handler, *items, max_tracked=limit) as running:
        await running.ends(limit)
        await idle()
        assert len(running.lines) == limit
        assert len(running.tracker.running) == limit
        gate.set()
        await running.ends(limit + 2)

    assert running.lines == [f"ack {number}" for number in range(1, limit + 3)]


@pytest.mark.promise("SETTLE-23")
async def test_one_that_is_not_due_takes_no_place() -> None:
    """A place is reserved for what is called after this outcome, and for nothing else."""

    async def later() -> None:
        raise AssertionError

    async def handler(body: bytes, ctx: Context) -> None:
        ctx.after("drop", later)

    async with rig(handler, max_tracked=1) as running:
        await running.tracker.reserve()
        running.feed(ScriptedDelivery("1"))
        await running.ends(1)

    assert running.lines == ["ack 1"]


@pytest.mark.promise("SETTLE-23")
async def test_a_stop_waits_for_them() -> None:
    """What follows a settlement has ended when the drain is over."""
    gate, done = anyio.Event(), []

    async def slow() -> None:
        await gate.wait()
        done.append(True)

    async def handler(body: bytes, ctx: Context) -> None:
        ctx.after_ack(slow)

    async with rig(handler, ScriptedDelivery("1")) as running:
        await running.ends(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.stop)
            await idle()
            assert not done
            gate.set()

        assert done


@pytest.mark.promise("SETTLE-24")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
async def test_a_failing_one_changes_nothing(asynchronous: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is logged as an ERROR; the others and the next deliveries are not affected."""
    called: list[str] = []
    events: list[Settled] = []

    def broken() -> None:
        raise ValueError

    async def broken_too() -> None:
        raise ValueError

    async def handler(body: bytes, ctx: Context) -> None:
        ctx.after_ack(broken_too if asynchronous else broken)
        ctx.after_ack(called.append, ctx.id)

    async with rig(handler, ScriptedDelivery("1"), ScriptedDelivery("2"), hooks=(events.append,)) as running:
        await running.ends(2)
        await idle()

    assert running.lines == ["ack 1", "ack 2"]
    assert (called, len(events)) == (["1", "2"], 2)
    record = caplog.records[0]
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("orders: callback failed: ")
    assert "broken" in record.getMessage()


@pytest.mark.promise("SETTLE-25")
@pytest.mark.parametrize("form", FORMS, ids=repr)
async def test_in_place_only_the_deciding_run_counts(form: dict[str, Any]) -> None:
    """What an earlier run has left is not called: neither when it is run again, nor at the end."""
    called: list[str] = []

    async def handler(body: bytes, ctx: Context) -> Outcome | None:
        ctx.after_settle(called.append, f"settled after {ctx.attempt}")
        ctx.after("retry", called.append, f"retried after {ctx.attempt}")
        return retry_after(5) if ctx.attempt < 3 else None

    async with rig(handler, ScriptedDelivery("1"), source=ScriptedSource(retry="in_place"), **form) as running:
        for _ in range(2):
            await running.timer()
            assert called == []
            running.clock.advance(5)
            await idle()

        await running.ends(1)
        await idle()

    assert (running.lines, called) == (["ack 1"], ["settled after 3"])
