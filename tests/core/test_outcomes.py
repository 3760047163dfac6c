"""What each outcome does to its delivery, however the handler says it; and what comes after."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from pystream import FailurePolicy, Outcome, Settle, ack, dead_letter, drop, retry, retry_after
from pystream.errors import ConfigurationError

from tests.core.rig import idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery

_OUTCOMES = [
    pytest.param(None, ["ack 1"], [], id="None"),
    pytest.param(ack(), ["ack 1"], [], id="ack"),
    pytest.param(retry(), ["requeue 1"], [], id="retry"),
    pytest.param(retry_after(5), ["retry_after 1"], [5.0], id="retry_after"),
    pytest.param(retry_after(0), ["retry_after 1"], [0.0], id="retry_after 0"),
    pytest.param(drop(), ["reject 1"], [], id="drop"),
]


@pytest.mark.promise("SETTLE-2")
def test_outcomes_are_plain_values() -> None:
    """Outcomes compare by value, can be pickled and are no exceptions."""
    for outcome in (ack(), retry(), retry_after(5), drop(), dead_letter("odd")):
        assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301  # of our own making
        assert not isinstance(outcome, BaseException)

    assert retry_after(timedelta(seconds=5)) == retry_after(5) == Outcome("retry", 5.0)
    assert len({ack(), retry(), retry_after(5), drop(), retry_after(6), dead_letter("a"), dead_letter("b")}) == 7
    assert (dead_letter("a").kind, dead_letter("a").reason, drop().reason) == ("dead_letter", "a", None)


@pytest.mark.promise("SETTLE-2")
def test_outcomes_show_how_they_were_made() -> None:
    """An outcome reads as the call that makes it."""
    shown = [repr(outcome) for outcome in (ack(), retry(), retry_after(0.5), drop(), ack().and_after(idle, 3))]
    assert shown == ["ack()", "retry()", "retry_after(0.5)", "drop()", "ack().and_after(idle, 3)"]
    assert repr(dead_letter("it's odd")) == 'dead_letter("it\'s odd")'


@pytest.mark.promise("SETTLE-2")
@pytest.mark.parametrize("delay", [-1, float("inf"), float("nan"), timedelta(seconds=-1)])
def test_a_delay_that_is_none_is_refused(delay: Any) -> None:
    """A delay is a finite number of seconds, 0 or more."""
    with pytest.raises(ConfigurationError, match="give a delay of 0 or more seconds"):
        retry_after(delay)


@pytest.mark.promise("RETRY-31")
@pytest.mark.parametrize("reason", ["", None, 5, ValueError("odd")])
def test_a_dead_letter_has_a_reason(reason: Any) -> None:
    """A reason is a text that is not empty."""
    with pytest.raises(ConfigurationError) as refused:
        dead_letter(reason)

    text = f"dead_letter({reason!r}): give a reason, such as dead_letter('unknown currency')"
    assert str(refused.value) == text


@pytest.mark.promise("SETTLE-3")
def test_settle_takes_an_outcome() -> None:
    """Settle(retry) for Settle(retry()) is refused where it is raised."""
    with pytest.raises(ConfigurationError, match="give an outcome"):
        Settle(retry)  # type: ignore[arg-type]  # the point of the test


def _returning(outcome: Outcome | None) -> Callable[[bytes], Any]:
    async def handler(body: bytes) -> Outcome | None:
        return outcome

    return handler


def _raising(outcome: Outcome | None) -> Callable[[bytes], Any]:
    async def handler(body: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        raise Settle(outcome or ack())

    return handler


def _raising_in_groups(outcome: Outcome | None) -> Callable[[bytes], Any]:
    async def leaf() -> None:
        raise Settle(outcome or ack())

    async def handler(body: bytes) -> None:
        async with anyio.create_task_group() as outer:
            outer.start_soon(leaf)
            async with anyio.create_task_group() as inner:
                inner.start_soon(leaf)
                inner.start_soon(leaf)

    return handler


@pytest.mark.promise("SETTLE-1", "SETTLE-2", "SETTLE-3")
@pytest.mark.anyio
@pytest.mark.parametrize("says", [_returning, _raising, _raising_in_groups], ids=["returned", "raised", "in groups"])
@pytest.mark.parametrize(("outcome", "lines", "delays"), _OUTCOMES)
async def test_each_outcome_has_its_settlement(
    outcome: Outcome | None, lines: list[str], delays: list[float], says: Any
) -> None:
    """An outcome has its one settlement, whether returned, raised, or raised in nested task groups."""
    async with rig(says(outcome), DelayableDelivery("1", count=1)) as running:
        await running.ends(1)

    assert (running.lines, running.journal.delays) == (lines, delays)


@pytest.mark.promise("SETTLE-3", "RETRY-1")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("", [Settle(ack()), ValueError()]),
        ExceptionGroup("", [Settle(ack()), Settle(drop())]),
        ExceptionGroup("", [ExceptionGroup("", [Settle(ack())]), ExceptionGroup("", [Settle(drop())])]),
    ],
    ids=["with an error", "of two outcomes", "of two outcomes, nested"],
)
async def test_a_group_that_is_not_one_settle_is_a_failure(error: Exception) -> None:
    """Only a group whose leaves are all one outcome is a decision."""

    async def handler(body: bytes) -> None:
        raise error

    async with rig(handler, DelayableDelivery("1", count=1)) as running:
        await running.ends(1)

    assert running.lines == ["retry_after 1"]


@pytest.mark.promise("SETTLE-2")
@pytest.mark.anyio
async def test_a_delay_that_the_broker_cannot_hold_is_waited_for() -> None:
    """Without the capability the handling task waits, then has the message requeued."""
    async with rig(_returning(retry_after(5)), ScriptedDelivery("1", count=1)) as running:
        await running.timer()
        running.clock.advance(4.9)
        await idle()
        assert running.lines == []
        running.clock.advance(0.1)
        await running.ends(1)

    assert running.lines == ["requeue 1"]


@pytest.mark.promise("SETTLE-1", "DISPATCH-6")
@pytest.mark.anyio
async def test_a_stop_ends_that_wait_and_gives_the_delivery_back() -> None:
    """A stop during such a wait leaves the delivery unsettled, given back once."""
    async with rig(_returning(retry_after(5)), ScriptedDelivery("1", count=1)) as running:
        await running.timer()
        await running.stop()

    assert running.lines == ["release 1"]
    assert running.clock.timers == 0


# What comes after the settlement.


@pytest.mark.promise("SETTLE-4")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("outcome", "line"),
    [(ack(), "ack 1"), (retry(), "requeue 1"), (retry_after(5), "retry_after 1"), (drop(), "reject 1")],
    ids=repr,
)
async def test_a_continuation_follows_the_settlement(outcome: Outcome, line: str) -> None:
    """Plain functions, coroutine functions, partials and callable objects run once, after the settlement."""
    calls: list[Any] = []

    def plain(*args: Any) -> None:
        calls.append(("plain", args, list(running.lines)))

    async def coroutine(*args: Any) -> None:
        calls.append(("async", args, list(running.lines)))

    class Callable_:  # noqa: N801  # the name of the builtin is taken
        async def __call__(self, *args: Any) -> None:
            calls.append(("object", args, list(running.lines)))

    for fn, name in ((plain, "plain"), (coroutine, "async"), (Callable_(), "object")):
        for called in (fn, functools.partial(fn, 1)):
            calls.clear()
            args = (2,) if called is fn else ()
            async with rig(_returning(outcome.and_after(called, *args)), DelayableDelivery("1", count=1)) as running:
                await running.ends(1)

            assert calls == [(name, args or (1,), [line])]


@pytest.mark.promise("SETTLE-3", "SETTLE-4")
@pytest.mark.anyio
@pytest.mark.parametrize("says", [_raising, _raising_in_groups], ids=["raised", "in groups"])
async def test_a_raised_outcome_keeps_its_continuation(says: Any) -> None:
    """What follows the settlement runs once also where the outcome was raised."""
    calls: list[int] = []
    async with rig(says(drop().and_after(calls.append, 1)), ScriptedDelivery("1")) as running:
        await running.ends(1)

    assert (running.lines, calls) == (["reject 1"], [1])


@pytest.mark.promise("SETTLE-4")
@pytest.mark.anyio
async def test_a_second_continuation_replaces_the_first() -> None:
    """and_after keeps the last function only, and leaves the outcome it was called on alone."""
    calls: list[int] = []
    first = ack().and_after(calls.append, 1)
    async with rig(_returning(first.and_after(calls.append, 2)), ScriptedDelivery("1")) as running:
        await running.ends(1)

    assert calls == [2]
    assert first.continuation == (calls.append, (1,))
    assert ack().continuation is None


@pytest.mark.promise("SETTLE-4")
@pytest.mark.anyio
@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
async def test_what_a_continuation_raises_is_logged_and_changes_nothing(
    asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing continuation is an ERROR with its name; the settlement stands and the loop goes on."""

    def broken() -> None:
        raise ValueError("broken")

    async def broken_too() -> None:
        broken()

    outcome = ack().and_after(broken_too if asynchronous else broken)
    async with rig(_returning(outcome), ScriptedDelivery("1"), ScriptedDelivery("2")) as running:
        await running.ends(2)

    assert running.lines == ["ack 1", "ack 2"]
    (record, *_) = [item for item in caplog.records if item.levelname == "ERROR"]
    assert record.getMessage().startswith("orders: callback failed: ")
    assert ("broken_too" if asynchronous else "broken") in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.promise("SETTLE-4", "SETTLE-6")
@pytest.mark.anyio
async def test_a_continuation_follows_a_failed_settlement_too() -> None:
    """The attempt counts: a continuation runs also where the settlement was not made."""
    calls: list[int] = []
    delivery = ScriptedDelivery("1", refusal=RuntimeError("no"))
    async with rig(_returning(ack().and_after(calls.append, 1)), delivery) as running:
        await running.ends(1)

    assert (running.lines, calls) == (["refused ack 1"], [1])


@pytest.mark.promise("SETTLE-4")
@pytest.mark.anyio
async def test_a_delivery_left_unsettled_has_no_continuation() -> None:
    """What is given back runs nothing afterwards."""
    calls: list[int] = []
    handler = _returning(retry_after(5).and_after(calls.append, 1))
    async with rig(handler, ScriptedDelivery("1", count=1)) as running:
        await running.timer()
        await running.stop()

    assert (running.lines, calls) == (["release 1"], [])


@pytest.mark.promise("SETTLE-2")
@pytest.mark.anyio
@pytest.mark.parametrize("function", [ack, drop, retry, retry_after, dead_letter])
async def test_an_outcome_that_was_not_called_is_a_mistake_of_the_handler(function: Any) -> None:
    """`return retry` without parentheses is a failure of the handler, and not an acknowledgement."""
    seen: list[str] = []

    def judge(error: Exception, attempt: int) -> Outcome:
        seen.append(str(error))
        return drop()

    async def handler(body: bytes) -> Any:
        return function

    async with rig(handler, ScriptedDelivery("1"), on_failure=FailurePolicy(error=judge)) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
    assert f"returned the function {function.__name__}: call it" in seen[0]
