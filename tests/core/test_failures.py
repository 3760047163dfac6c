"""What becomes of a delivery whose handler raised, by rules that are refused where they are no rules."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from pystream import (
    FAIL_FAST,
    Backoff,
    Context,
    FailurePolicy,
    Outcome,
    Settle,
    ack,
    dead_letter,
    drop,
    retry,
    retry_after,
)
from pystream.errors import ConfigurationError, DecodeError, SettlementRejected

from tests.core.rig import rig
from tests.core.scripted import DelayableDelivery, ScriptedSource


def _failing(error: BaseException, seen: list[Any] | None = None) -> Callable[..., Any]:
    async def handler(body: bytes, context: Context) -> None:
        if seen is not None:
            seen.append((context.id, context.attempt))

        raise error

    return handler


# The rules themselves.


@pytest.mark.promise("RETRY-1")
@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60), (100, 60), (10**9, 60)]
)
def test_backoff_doubles_from_one_second_to_a_minute(attempt: int, seconds: float) -> None:
    """The delay before jitter is 1 s, doubled with each attempt, and 60 s at most."""
    assert Backoff(jitter=0).delay(attempt) == seconds


@pytest.mark.promise("RETRY-1")
def test_jitter_is_twenty_percent_to_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least delay is four fifths of the undisturbed one, the longest six fifths."""
    for share, expected in ((-1, 3.2), (0, 4.0), (1, 4.8)):
        monkeypatch.setattr(random, "uniform", lambda low, high, share=share: {-1: low, 0: 0, 1: high}[share])
        assert Backoff().delay(3) == pytest.approx(expected)

    monkeypatch.undo()
    delays = {Backoff().delay(3) for _ in range(100)}
    assert len(delays) > 50
    assert all(3.2 <= delay <= 4.8 for delay in delays)


@pytest.mark.promise("RETRY-3")
@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": 0},
        {"initial": -1},
        {"initial": 10, "maximum": 5},
        {"maximum": float("inf")},
        {"factor": 0.5},
        {"jitter": 1},
        {"jitter": -0.1},
        {"factor": float("nan")},
    ],
    ids=str,
)
def test_backoff_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    """A backoff that makes no sense is refused where it is made, naming the values."""
    with pytest.raises(ConfigurationError, match=r"Backoff\("):
        Backoff(**wrong)


async def _async_rule(error: Exception, attempt: int) -> Outcome:
    return ack()


@pytest.mark.promise("RETRY-3")
@pytest.mark.parametrize(
    "wrong",
    [
        {"error": "retry"},
        {"error": None},
        {"error": _async_rule},
        {"error": {ValueError: "retry"}},
        {"error": {ValueError: lambda error, attempt: ack()}},
        {"error": {"ValueError": ack()}},
        {"error": {KeyboardInterrupt: ack()}},
        {"decode": "drop"},
        {"decode": Backoff()},
        {"decode_limit": 0},
    ],
    ids=str,
)
def test_a_policy_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """A rule that could never apply is refused where it is made."""
    with pytest.raises(ConfigurationError, match=r"FailurePolicy\("):
        FailurePolicy(**wrong)


@pytest.mark.promise("RETRY-3")
def test_policies_are_plain_values() -> None:
    """Policies compare by value, can be pickled, and FAIL_FAST stays the one it is."""
    assert FailurePolicy() == FailurePolicy()
    policy = FailurePolicy.strict()
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301  # of our own making
    assert pickle.loads(pickle.dumps(FAIL_FAST)) is FAIL_FAST  # noqa: S301  # of our own making
    assert repr(FAIL_FAST) == "FAIL_FAST"
    assert (policy.error, policy.decode, policy.decode_limit) == (FAIL_FAST, drop(), None)


@pytest.mark.promise("RETRY-32")
def test_the_default_for_what_cannot_be_read() -> None:
    """A dead letter, its reason the error's text or else its class; a drop where none are declared."""
    policy = FailurePolicy()
    assert policy.on_unreadable(DecodeError("no JSON"), has_dead_letter=True) == dead_letter("no JSON")
    assert policy.on_unreadable(DecodeError(), has_dead_letter=True) == dead_letter("DecodeError")
    assert policy.on_unreadable(DecodeError("no JSON"), has_dead_letter=False) == drop()
    for rule in (drop(), ack(), FAIL_FAST):
        assert FailurePolicy(decode=rule).on_unreadable(DecodeError(), has_dead_letter=True) == rule


class Base(Exception):
    pass


class Middle(Base):
    pass


class Leaf(Middle):
    pass


@pytest.mark.promise("RETRY-3")
@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Leaf(), ack()),
        (Middle(), drop()),
        (Base(), FAIL_FAST),
        (KeyError(), retry()),
        (IndexError(), Backoff(initial=5)),
        (ValueError(), Backoff()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_nearest_class_decides(error: Exception, verdict: Any) -> None:
    """Of the classes in a mapping the nearest in the exception's MRO decides, else the default."""
    policy = FailurePolicy(
        error={
            LookupError: Backoff(initial=5),
            Base: FAIL_FAST,
            Leaf: ack(),
            Middle: drop(),
            KeyError: retry(),
        }
    )
    assert policy.on_error(error, 1) == verdict


# A handler that raises.


@pytest.mark.promise("RETRY-1")
@pytest.mark.anyio
@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (7, 60), (9, 60)])
async def test_a_failed_delivery_is_retried_with_backoff(
    attempt: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """By default a failure retries after the backoff of the attempt, with an ERROR that says so."""
    async with rig(_failing(ValueError("broken")), DelayableDelivery("1", b"secret", count=attempt)) as running:
        await running.ends(1)

    assert running.lines == ["retry_after 1"]
    (delay,) = running.journal.delays
    assert 0.8 * seconds <= delay <= 1.2 * seconds
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelname == "ERROR"
    assert text.startswith(f"orders: handler failed: message 1, attempt {attempt}: ValueError; retry_after(")
    assert "secret" not in text
    assert record.exc_info is not None
    assert running.failures == []


@pytest.mark.promise("RETRY-10")
@pytest.mark.anyio
async def test_backoff_stays_below_the_sources_longest_delay() -> None:
    """A backoff beyond what the source can hold is kept below it."""
    source = ScriptedSource(max_delay=10)
    async with rig(_failing(ValueError()), DelayableDelivery("1", count=7), source=source) as running:
        await running.ends(1)

    assert running.journal.delays == [9.0]


@pytest.mark.promise("RETRY-10")
@pytest.mark.anyio
async def test_a_policys_own_delay_stays_below_it_too() -> None:
    """A rule that asks for too long a delay does not leave the delivery unsettled."""
    source, policy = ScriptedSource(max_delay=10), FailurePolicy(error=retry_after(10))
    async with rig(_failing(ValueError()), DelayableDelivery("1"), source=source, policy=policy) as running:
        await running.ends(1)

    assert (running.lines, running.journal.delays) == (["retry_after 1"], [9.0])


@pytest.mark.promise("RETRY-10")
@pytest.mark.anyio
@pytest.mark.parametrize("delay", [10, 3600])
async def test_a_delay_that_the_source_cannot_hold_is_a_failure_of_the_handler(delay: float) -> None:
    """retry_after at or beyond the source's longest delay counts as if the handler had raised."""
    seen: list[Exception] = []

    def judge(error: Exception, attempt: int) -> Outcome:
        seen.append(error)
        return drop()

    async def handler(body: bytes) -> Outcome:
        return retry_after(delay)

    source, policy = ScriptedSource(max_delay=10), FailurePolicy(error=judge)
    async with rig(handler, DelayableDelivery("1"), source=source, policy=policy) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
    (error,) = seen
    assert isinstance(error, SettlementRejected)
    assert str(error) == (f"orders: retry_after({delay}) asks for a delay that must stay below 10 s on this source")


@pytest.mark.promise("RETRY-10")
@pytest.mark.anyio
async def test_a_delay_just_below_the_longest_is_held() -> None:
    """A delay below the source's longest goes to the broker as it is."""

    async def handler(body: bytes) -> Outcome:
        return retry_after(9.99)

    async with rig(handler, DelayableDelivery("1"), source=ScriptedSource(max_delay=10)) as running:
        await running.ends(1)

    assert running.journal.delays == [9.99]


_VERDICTS = [
    pytest.param(ack(), "ack 1", id="ack"),
    pytest.param(retry(), "requeue 1", id="retry"),
    pytest.param(retry_after(3), "retry_after 1", id="retry_after"),
    pytest.param(drop(), "reject 1", id="drop"),
    pytest.param(Backoff(), "retry_after 1", id="Backoff"),
]


@pytest.mark.promise("RETRY-3")
@pytest.mark.anyio
@pytest.mark.parametrize("form", ["value", "mapping", "function"])
@pytest.mark.parametrize(("verdict", "line"), _VERDICTS)
async def test_a_rule_may_be_any_outcome(verdict: Any, line: str, form: str) -> None:
    """An outcome or a backoff may be given outright, per class, or by a function."""
    rules: dict[str, Any] = {
        "value": verdict,
        "mapping": {ValueError: verdict},
        "function": lambda error, attempt: verdict,
    }
    policy = FailurePolicy(error=rules[form])
    async with rig(_failing(ValueError()), DelayableDelivery("1", count=1), policy=policy) as running:
        await running.ends(1)

    assert running.lines == [line]


@pytest.mark.promise("RETRY-3")
@pytest.mark.anyio
async def test_a_function_sees_the_exception_and_the_attempt() -> None:
    """A rule that is a function gets what was raised and which attempt it was."""
    error, seen = ValueError(), list[Any]()

    def judge(raised: Exception, attempt: int) -> Outcome:
        seen.append((raised, attempt))
        return ack()

    async with rig(_failing(error), DelayableDelivery("1", count=4), policy=FailurePolicy(error=judge)) as running:
        await running.ends(1)

    assert seen == [(error, 4)]


# Fail fast.


def _raise(error: Exception, attempt: int) -> Outcome:
    raise RuntimeError("the rule is broken")


def _forget(error: Exception, attempt: int) -> Any:
    return None


@pytest.mark.promise("RETRY-4")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        pytest.param(FAIL_FAST, ValueError, id="FAIL_FAST"),
        pytest.param({ValueError: FAIL_FAST}, ValueError, id="per class"),
        pytest.param(lambda error, attempt: FAIL_FAST, ValueError, id="by a function"),
        pytest.param(_raise, RuntimeError, id="function that raises"),
        pytest.param(_forget, ConfigurationError, id="function that returns nothing"),
    ],
)
async def test_fail_fast_leaves_the_delivery_unsettled_and_stops_its_loop(rule: Any, kind: type) -> None:
    """A fail-fast gives the delivery back, takes no other one, and tells the service who failed."""
    policy = FailurePolicy(error=rule)
    error = ValueError("broken")
    async with rig(_failing(error), DelayableDelivery("1"), DelayableDelivery("2"), policy=policy) as running:
        await running.finished()

    assert running.lines == ["release 1"]
    ((step, name, raised),) = running.failures
    assert (step, name, type(raised)) == ("handler", "orders", kind)
    assert raised is error or raised.__context__ is error


@pytest.mark.promise("RETRY-4")
@pytest.mark.anyio
async def test_settle_is_no_error_for_a_strict_policy() -> None:
    """A raised outcome is none of the failure policy's affair."""
    async with rig(_failing(Settle(drop())), DelayableDelivery("1"), policy=FailurePolicy.strict()) as running:
        await running.ends(1)

    assert (running.lines, running.failures) == (["reject 1"], [])
