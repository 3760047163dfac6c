"""Deliveries that cannot be read: what becomes of them, and what is logged of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from pystream import (
    FAIL_FAST,
    FailurePolicy,
    Header,
    Outcome,
    Settle,
    ack,
    drop,
    retry,
    retry_after,
)
from pystream.errors import DecodeError

from tests.core.rig import Rig, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery


class Order(BaseModel):
    id: int


async def handle_order(order: Order) -> None: ...


def _unreadable(number: int, **given: Any) -> DelayableDelivery:
    return DelayableDelivery(str(number), b'{"id": "secret"}', **given)


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
