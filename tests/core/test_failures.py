"""What becomes of a delivery whose handler raised, or which could not be read."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from pystream import (
    FAIL_FAST,
    Backoff,
    Context,
    FailurePolicy,
    Header,
    Outcome,
    Settle,
    ack,
    drop,
    retry,
    retry_after,
)
from pystream.errors import ConfigurationError, DecodeError, SettlementRejected

from tests.core.rig import Rig, idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource

IN_PLACE = ScriptedSource(retry="in_place")


class Order(BaseModel):
    id: int


def _failing(error: BaseException, seen: list[Any] | None = None) -> Callable[..., Any]:
    async def handler(body: bytes, context: Context) -> None:
        if seen is not None:
            seen.append((context.id, context.attempt))

        raise error

    return handler


async def handle_order(order: Order) -> None: ...


def _unreadable(number: int, **given: Any) -> DelayableDelivery:
    return DelayableDelivery(str(number), b'{"id": "secret"}', **given)


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
        {"decode": None},
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


# What cannot be read.


@pytest.mark.promise("RETRY-5", "RETRY-11")
@pytest.mark.anyio
async def test_an_undecodable_delivery_is_dropped_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """By default it is rejected; the ERROR names subscription, message and reasons, never the payload."""
    async with rig(handle_order, _unreadable(17, count=1)) as running:
        await running.ends(1)

    assert running.lines == ["reject 17"]
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), record.exc_info) == (
        "ERROR",
        "orders: unreadable delivery: message 17: the payload is not valid: id: int_parsing; drop()",
        None,
    )


async def with_header(body: bytes, number: Annotated[int, Header("n")]) -> None: ...


@pytest.mark.promise("RETRY-5")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("handler", "make"),
    [
        pytest.param(handle_order, lambda: DelayableDelivery("1", b"{}"), id="payload"),
        pytest.param(with_header, lambda: DelayableDelivery("1"), id="header missing"),
        pytest.param(with_header, lambda: DelayableDelivery("1", headers={"n": b"x"}), id="header not valid"),
        pytest.param(
            with_header, lambda: DelayableDelivery("1", header_error=DecodeError("x")), id="headers unreadable"
        ),
        pytest.param(
            handle_order, lambda: DelayableDelivery("1", b'{"id": 1}', decode_error=DecodeError("x")), id="wire form"
        ),
        pytest.param(
            with_header, lambda: DelayableDelivery("1", decode_error=DecodeError("x")), id="wire form, with header"
        ),
    ],
)
@pytest.mark.parametrize(
    ("rule", "line"),
    [(drop(), "reject 1"), (ack(), "ack 1"), (retry_after(9), "retry_after 1"), (retry(), "requeue 1")],
    ids=repr,
)
async def test_the_decode_rule_decides_over_what_cannot_be_read(
    handler: Any, make: Callable[[], DelayableDelivery], rule: Outcome, line: str
) -> None:
    """Payload, header contract and wire form go by the decode rule, not by the error rule."""
    policy = FailurePolicy(error=FAIL_FAST, decode=rule)
    async with rig(handler, make(), policy=policy) as running:
        await running.ends(1)

    assert (running.lines, running.failures) == ([line], [])


@pytest.mark.promise("RETRY-5")
@pytest.mark.anyio
async def test_a_validation_error_of_the_handler_is_the_handlers() -> None:
    """What pydantic refuses inside the handler goes by the error rule."""

    async def handler(body: bytes) -> None:
        Order.model_validate_json(body)

    policy = FailurePolicy(error=ack(), decode=FAIL_FAST)
    async with rig(handler, DelayableDelivery("1", b"{}"), policy=policy) as running:
        await running.ends(1)

    assert running.lines == ["ack 1"]


@pytest.mark.promise("RETRY-4", "RETRY-5")
@pytest.mark.anyio
async def test_fail_fast_drops_what_cannot_be_read() -> None:
    """It would come back into the same failure at every start, so it is rejected all the same."""
    policy = FailurePolicy(decode=FAIL_FAST)
    async with rig(handle_order, _unreadable(1), _unreadable(2), policy=policy) as running:
        await running.finished()

    assert running.lines == ["reject 1"]
    ((step, name, error),) = running.failures
    assert (step, name, str(error)) == ("handler", "orders", "the payload is not valid: id: int_parsing")


async def _undecodable(count: int, *others: ScriptedDelivery, **given: Any) -> Rig:
    async with rig(handle_order, *(_unreadable(number) for number in range(1, count + 1)), *others, **given) as running:
        if running.failures or count >= 100:
            await running.finished()
        else:
            await running.ends(count + len(others))

    return running


@pytest.mark.promise("RETRY-6")
@pytest.mark.anyio
async def test_99_undecodable_in_a_row_do_not_stop_the_service() -> None:
    """Below the limit each is dropped and the service goes on."""
    running = await _undecodable(99, DelayableDelivery("good", b'{"id": 1}'))
    assert running.lines == [*(f"reject {number}" for number in range(1, 100)), "ack good"]
    assert running.failures == []


@pytest.mark.promise("RETRY-6")
@pytest.mark.anyio
async def test_the_100th_undecodable_in_a_row_stops_the_service() -> None:
    """The hundredth is left unsettled, so that no more is lost than was."""
    running = await _undecodable(100, DelayableDelivery("good", b'{"id": 1}'))
    assert running.lines == [*(f"reject {number}" for number in range(1, 100)), "release 100"]
    ((step, name, error),) = running.failures
    assert (step, name) == ("handler", "orders")
    assert str(error) == (
        "100 deliveries in a row could not be read; the last one: the payload is not valid: id: int_parsing"
    )


async def _fails_on_good(order: Order) -> None:
    raise ValueError


async def _settles_on_good(order: Order) -> None:
    raise Settle(drop())


@pytest.mark.promise("RETRY-6")
@pytest.mark.anyio
@pytest.mark.parametrize("handler", [handle_order, _fails_on_good, _settles_on_good], ids=["ack", "failure", "Settle"])
async def test_one_readable_delivery_begins_the_count_anew(handler: Any) -> None:
    """The limit is for deliveries in a row: one that can be read ends the row, whatever its handler does."""
    policy = FailurePolicy(decode_limit=3)
    good = DelayableDelivery("good", b'{"id": 1}')
    items = [_unreadable(1), _unreadable(2), good, _unreadable(3), _unreadable(4), _unreadable(5)]
    async with rig(handler, *items, policy=policy) as running:
        await running.finished()

    assert running.lines[-3:] == ["reject 3", "reject 4", "release 5"]
    assert len(running.failures) == 1


@pytest.mark.promise("RETRY-6")
@pytest.mark.anyio
async def test_no_limit_never_stops() -> None:
    """A limit of none lets any number of undecodable deliveries pass."""
    policy = FailurePolicy(decode_limit=None)
    async with rig(handle_order, *(_unreadable(number) for number in range(150)), policy=policy) as running:
        await running.ends(150)

    assert running.failures == []


# Retries in place.


@pytest.mark.promise("RETRY-7", "RETRY-8")
@pytest.mark.anyio
async def test_a_source_that_retries_in_place_runs_the_delivery_again() -> None:
    """The handling task waits and runs it again before anything else; attempts are counted locally."""
    seen: list[Any] = []

    async def handler(body: bytes, context: Context) -> Outcome | None:
        seen.append((context.id, context.attempt))
        return retry_after(5) if len(seen) < 3 else None

    async with rig(handler, DelayableDelivery("1", count=2), DelayableDelivery("2"), source=IN_PLACE) as running:
        for _ in range(2):
            await running.timer()
            running.clock.advance(4.99)
            await idle()
            held = list(seen)
            running.clock.advance(0.01)
            await idle()
            assert len(seen) > len(held)

        await running.ends(2)

    assert seen == [("1", 2), ("1", 3), ("1", 4), ("2", 1)]
    assert running.lines == ["ack 1", "ack 2"]


@pytest.mark.promise("RETRY-7")
@pytest.mark.anyio
async def test_a_retry_in_place_without_a_delay_waits_a_tenth_of_a_second() -> None:
    """No default makes a hot loop: two runs in place lie 0.1 s apart at least."""
    seen: list[int] = []

    async def handler(body: bytes) -> Outcome | None:
        seen.append(1)
        return retry() if len(seen) == 1 else None

    async with rig(handler, DelayableDelivery("1"), source=IN_PLACE) as running:
        await running.timer()
        running.clock.advance(0.099)
        await idle()
        assert len(seen) == 1
        running.clock.advance(0.001)
        await running.ends(1)

    assert running.lines == ["ack 1"]


@pytest.mark.promise("RETRY-7")
@pytest.mark.anyio
async def test_a_failure_is_backed_off_in_place_by_its_local_attempt() -> None:
    """Failures in place double their delay from run to run."""
    async with rig(_failing(ValueError()), DelayableDelivery("1"), source=IN_PLACE) as running:
        for seconds in (1, 2, 4):
            await running.timer()
            running.clock.advance(0.8 * seconds - 0.01)
            await idle()
            assert running.clock.timers == 1
            running.clock.advance(0.4 * seconds + 0.02)
            await idle()

        await running.timer()

    assert running.lines == ["release 1"]


@pytest.mark.promise("RETRY-7")
@pytest.mark.anyio
async def test_a_delivery_may_override_the_sources_kind_of_retry() -> None:
    """Delivery.retry goes before the source's kind, in both directions."""

    async def handler(body: bytes) -> Outcome:
        return retry()

    async with rig(handler, DelayableDelivery("1", retry="in_place", count=1)) as running:
        await running.timer()

    assert running.lines == ["release 1"]
    async with rig(handler, DelayableDelivery("1", retry="broker", count=1), source=IN_PLACE) as running:
        await running.ends(1)

    assert running.lines == ["requeue 1"]


@pytest.mark.promise("RETRY-7", "STOP-20")
@pytest.mark.anyio
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_stop_during_the_wait_gives_the_delivery_back(how: str) -> None:
    """A stop or a cancellation while it waits in place leaves the delivery unsettled, once."""
    async with rig(_failing(ValueError()), DelayableDelivery("1"), DelayableDelivery("2"), source=IN_PLACE) as running:
        await running.timer()
        running.subscription.stop() if how == "stop" else running.subscription.cancel()
        await running.finished()

    assert running.lines == ["release 1"]
    assert [item.id for item in running.stream.taken] == ["1"]


@pytest.mark.promise("RETRY-7", "RETRY-4")
@pytest.mark.anyio
async def test_a_rerun_may_fail_fast() -> None:
    """The verdict on a later run in place counts like that on the first."""

    def judge(error: Exception, attempt: int) -> Any:
        return retry() if attempt == 1 else FAIL_FAST

    policy = FailurePolicy(error=judge)
    async with rig(_failing(ValueError()), DelayableDelivery("1"), source=IN_PLACE, policy=policy) as running:
        await running.timer()
        running.clock.advance(1)
        await running.finished()

    assert running.lines == ["release 1"]
    assert len(running.failures) == 1


@pytest.mark.promise("RETRY-7", "RETRY-10")
@pytest.mark.anyio
async def test_a_delay_in_place_obeys_the_sources_longest() -> None:
    """In place, too, a delay that the source cannot hold is a failure: its backoff is waited for."""

    async def handler(body: bytes) -> Outcome:
        return retry_after(100)

    source = ScriptedSource(retry="in_place", max_delay=10)
    async with rig(handler, DelayableDelivery("1", count=9), source=source) as running:
        await running.timer()
        running.clock.advance(8.99)
        await idle()
        assert running.clock.timers == 1
        running.clock.advance(0.02)
        await idle()
        assert running.stream.taken[0].ends == []

    assert running.lines == ["release 1"]


# Attempts.


@pytest.mark.promise("RETRY-8")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("count", "header", "attempt"),
    [
        pytest.param(None, None, 1, id="neither"),
        pytest.param(3, None, 3, id="count"),
        pytest.param(None, b"4", 5, id="header"),
        pytest.param(3, b"4", 3, id="count before header"),
        pytest.param(1, b"9", 1, id="never both"),
        pytest.param(None, b"0", 1, id="header zero"),
        pytest.param(None, b"", 1, id="header empty"),
        pytest.param(None, b"-1", 1, id="header negative"),
        pytest.param(None, b"1.5", 1, id="header no whole number"),
        pytest.param(None, b"many", 1, id="header no number"),
        pytest.param(None, b"\xb2", 1, id="header no text"),
        pytest.param(None, b"9" * 5000, 1, id="header too long"),
    ],
)
async def test_the_attempt_is_the_brokers_count_else_the_headers(
    count: int | None, header: bytes | None, attempt: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt counts from 1 by the broker, else by the header; a malformed header counts as none."""
    seen: list[Any] = []
    headers = {} if header is None else {"X-PyStream-Retry-Count": header}
    delivery = DelayableDelivery("1", count=count, headers=headers)
    async with rig(_failing(ValueError(), seen), delivery) as running:
        await running.ends(1)

    assert seen == [("1", attempt)]
    assert f"attempt {attempt}:" in caplog.text
    assert running.lines == ["retry_after 1"]


@pytest.mark.promise("RETRY-8")
@pytest.mark.anyio
async def test_unreadable_headers_count_as_a_first_attempt() -> None:
    """A failure whose headers cannot be read is retried like the first."""

    async def handler(body: bytes) -> None:
        raise ValueError

    delivery = DelayableDelivery("1", header_error=DecodeError("broken"))
    async with rig(handler, delivery) as running:
        await running.ends(1)

    assert running.lines == ["retry_after 1"]
    assert 0.8 <= running.journal.delays[0] <= 1.2


@pytest.mark.promise("RETRY-9")
@pytest.mark.anyio
async def test_endless_retries_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """A retry beyond the tenth attempt is a WARNING, once per subscription; the tenth is none."""

    async def handler(body: bytes) -> Outcome:
        return retry()

    async with rig(handler, DelayableDelivery("1", count=9), DelayableDelivery("2", count=10)) as running:
        await running.ends(2)
        assert caplog.records == []
        running.feed(DelayableDelivery("3", count=11), DelayableDelivery("4", count=12))
        await running.ends(4)

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        "orders: message 3 is retried after attempt 11, and nothing caps the attempts",
    )


# The log.


@pytest.mark.promise("RETRY-11")
@pytest.mark.anyio
async def test_repeated_errors_are_counted_instead_of_written(caplog: pytest.LogCaptureFixture) -> None:
    """Of one kind one ERROR a second is written; the next says how many were kept back."""
    async with rig(handle_order, *(_unreadable(number) for number in range(5))) as running:
        await running.ends(5)
        assert len(caplog.records) == 1
        running.clock.advance(0.99)
        running.feed(_unreadable(5))
        await running.ends(6)
        assert len(caplog.records) == 1
        running.clock.advance(0.01)
        running.feed(_unreadable(6))
        await running.ends(7)
        running.clock.advance(5)
        running.feed(_unreadable(7))
        await running.ends(8)

    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3
    assert texts[1].endswith("message 6: the payload is not valid: id: int_parsing; drop() (and 5 more like it before)")
    assert texts[2].endswith("drop()")
    assert "secret" not in caplog.text


@pytest.mark.promise("RETRY-11")
@pytest.mark.anyio
async def test_one_kind_of_error_does_not_hide_another(caplog: pytest.LogCaptureFixture) -> None:
    """The limit is per kind: a failure is written beside an unreadable delivery."""
    async with rig(_fails_on_good, _unreadable(1), DelayableDelivery("2", b'{"id": 1}')) as running:
        await running.ends(2)

    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "unreadable delivery",
        "handler failed",
    ]
