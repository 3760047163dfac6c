"""Retries in place, and which attempt a delivery is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pystream import (
    FAIL_FAST,
    Context,
    FailurePolicy,
    Outcome,
    retry,
    retry_after,
)
from pystream.errors import DecodeError

from tests.core.rig import idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedSource

IN_PLACE = ScriptedSource(retry="in_place")


def _failing(error: BaseException, seen: list[Any] | None = None) -> Callable[..., Any]:
    async def handler(body: bytes, context: Context) -> None:
        if seen is not None:
            seen.append((context.id, context.attempt))

        raise error

    return handler


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


@pytest.mark.promise("RETRY-7", "DISPATCH-6")
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
