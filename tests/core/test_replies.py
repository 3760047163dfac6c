"""Replies: published before the acknowledgement, or the delivery is not acknowledged."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel, field_serializer
from pystream import FAIL_FAST, FailurePolicy, Outcome, Settle, ack, drop, retry_after
from pystream.errors import PublishError
from pystream.publishing import encoder

from tests.core.rig import rig
from tests.core.scripted import DelayableDelivery


class Confirmed(BaseModel):
    order_id: int
    note: str | None = None


class Stubborn(BaseModel):
    value: int = 1

    @field_serializer("value")
    def refuse(self, value: int) -> int:
        raise KeyError("no")


def _replying(value: Any, annotation: Any = Any) -> Any:
    async def handler(body: bytes) -> Any:
        return value

    handler.__annotations__["return"] = annotation
    return handler


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    return deep


@pytest.mark.promise("SETTLE-5")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "annotation", "sent"),
    [
        pytest.param(Confirmed(order_id=1), Confirmed, '{"order_id":1,"note":null}', id="model"),
        pytest.param(Confirmed(order_id=1), Confirmed | Outcome | None, '{"order_id":1,"note":null}', id="or Outcome"),
        pytest.param([Confirmed(order_id=1)], list[Confirmed], '[{"order_id":1,"note":null}]', id="list"),
        pytest.param(0, int, "0", id="zero"),
        pytest.param("", str, '""', id="empty text"),
        pytest.param([], list[int], "[]", id="empty list"),
        pytest.param({}, Any, "{}", id="empty dict"),
        pytest.param(False, bool, "false", id="false"),
        pytest.param(b"", bytes, "", id="empty bytes"),
        pytest.param(b"raw", bytes, "raw", id="bytes"),
        pytest.param(b"raw", Any, "raw", id="bytes without annotation"),
        pytest.param(Confirmed(order_id=1), Any, '{"order_id":1,"note":null}', id="model without annotation"),
    ],
)
async def test_every_value_but_none_is_published_and_then_acknowledged(value: Any, annotation: Any, sent: str) -> None:
    """A reply, falsy ones too, is published first and the delivery acknowledged after the receipt."""
    async with rig(_replying(value, annotation), DelayableDelivery("1"), reply_to="replies") as running:
        await running.ends(1)

    assert running.lines == [f"publish replies {sent}", "ack 1"]


@pytest.mark.promise("SETTLE-5")
@pytest.mark.anyio
async def test_nothing_incoming_leaks_into_a_reply() -> None:
    """A reply carries neither headers nor key of what it answers."""
    delivery = DelayableDelivery("1", headers={"x-secret": b"1"}, key="k")
    async with rig(_replying(1), delivery, reply_to="replies") as running:
        await running.ends(1)

    (outgoing,) = running.broker.sent
    assert (dict(outgoing.headers), outgoing.key) == ({}, None)
    assert delivery.header_reads == 0


@pytest.mark.promise("SETTLE-5")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "line"),
    [(None, "ack 1"), (ack(), "ack 1"), (drop(), "reject 1"), (retry_after(1), "retry_after 1")],
    ids=repr,
)
async def test_none_and_outcomes_publish_nothing(value: Any, line: str) -> None:
    """A replying handler that returns None or an outcome publishes nothing."""
    handler = _replying(value, Confirmed | Outcome | None)
    async with rig(handler, DelayableDelivery("1", count=1), reply_to="replies") as running:
        await running.ends(1)

    assert running.lines == [line]


@pytest.mark.promise("SETTLE-5")
@pytest.mark.anyio
async def test_settle_in_a_replying_handler_publishes_nothing() -> None:
    """A raised outcome goes before any reply."""

    async def handler(body: bytes) -> Confirmed:
        raise Settle(drop())

    async with rig(handler, DelayableDelivery("1"), reply_to="replies") as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]


_UNENCODABLE = [
    pytest.param(object, Any, id="object"),
    pytest.param(lambda: {"a": b"\xff"}, Any, id="bytes that are no text"),
    pytest.param(lambda: "\ud800", str, id="half a character"),
    pytest.param(_circle, Any, id="circle"),
    pytest.param(_circle, list[Any], id="annotated circle"),
    pytest.param(_deep, Any, id="too deep"),
    pytest.param(Stubborn, Stubborn, id="serializer that raises"),
]


@pytest.mark.promise("SETTLE-5")
@pytest.mark.parametrize(("make", "annotation"), _UNENCODABLE)
def test_a_value_that_cannot_be_encoded_is_an_error_of_ours(make: Any, annotation: Any) -> None:
    """Whatever the type's own serializer raises, publishing raises PublishError without showing the value."""
    value = make()
    with pytest.raises(PublishError, match=rf"a value of type {type(value).__name__} cannot be encoded as JSON"):
        encoder(annotation)(value)


@pytest.mark.promise("SETTLE-5", "RETRY-1")
@pytest.mark.anyio
@pytest.mark.parametrize(("make", "annotation"), _UNENCODABLE)
async def test_a_reply_that_cannot_be_encoded_is_a_failure_of_the_handler(make: Any, annotation: Any) -> None:
    """Such a reply is not published, and the failure policy decides."""
    seen: list[Exception] = []

    def judge(error: Exception, attempt: int) -> Outcome:
        seen.append(error)
        return drop()

    policy = FailurePolicy(error=judge)
    async with rig(_replying(make(), annotation), DelayableDelivery("1"), reply_to="replies", policy=policy) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
    assert isinstance(seen[0], PublishError)


@pytest.mark.promise("SETTLE-5", "RETRY-1")
@pytest.mark.anyio
@pytest.mark.parametrize("error", [PublishError("refused"), RuntimeError("a client's own")], ids=["ours", "other"])
async def test_a_reply_that_cannot_be_published_is_retried_with_backoff(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed publish retries the delivery with backoff, whatever the failure policy says."""
    policy = FailurePolicy(error=FAIL_FAST)
    async with rig(_replying(1), reply_to="replies", policy=policy) as running:
        running.broker.publish_errors.append(error)
        running.feed(DelayableDelivery("1", count=3), DelayableDelivery("2"))
        await running.ends(2)

    assert running.lines == ["unpublished replies", "retry_after 1", "publish replies 1", "ack 2"]
    (delay,) = running.journal.delays
    assert 3.2 <= delay <= 4.8
    assert running.failures == []
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert caplog.records[0].getMessage().startswith("orders: reply not published: message 1: ")


@pytest.mark.promise("SETTLE-5", "SETTLE-9")
@pytest.mark.anyio
async def test_a_cancelled_publish_leaves_the_delivery_unsettled() -> None:
    """A cancellation during the publish of a reply gives the delivery back."""
    begun = anyio.Event()
    async with rig(_replying(1), reply_to="replies") as running:

        async def publish(outgoing: Any, options: Any = None) -> None:
            begun.set()
            await anyio.sleep_forever()

        running.broker.publish = publish  # type: ignore[method-assign]  # a broker that does not answer
        running.feed(DelayableDelivery("1"))
        with anyio.fail_after(5):
            await begun.wait()

        running.subscription.cancel()
        await running.finished()

    assert running.lines == ["release 1"]


@pytest.mark.promise("SETTLE-5")
@pytest.mark.anyio
async def test_a_value_without_a_destination_is_discarded_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A returned value that nobody publishes is acknowledged; the first one is warned of."""
    async with rig(_replying([]), DelayableDelivery("1"), DelayableDelivery("2")) as running:
        await running.ends(2)

    assert running.lines == ["ack 1", "ack 2"]
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "WARNING",
            "orders: the handler returned a list, and no reply_to= says where to publish it; "
            "the delivery is acknowledged and the value discarded",
        )
    ]


class Shipped(BaseModel):
    """A reply."""

    order_id: int


class Stranger(BaseModel):
    """Another model, which nobody declared."""

    word: str


@pytest.mark.promise("SETTLE-5")
@pytest.mark.parametrize("value", [Stranger(word="t0p"), {"word": "t0p"}, "t0p"], ids=["model", "dict", "text"])
def test_a_value_of_another_type_is_not_published(value: object) -> None:
    """A value that is not what the annotation declares is an error that names both types and not the value."""
    with pytest.raises(PublishError) as refused:
        encoder(Shipped)(value)

    kind = type(value).__name__
    assert str(refused.value) == f"a value of type {kind} cannot be encoded as JSON as the declared Shipped"
    assert refused.value.__cause__ is None


@pytest.mark.promise("SETTLE-5")
def test_a_type_that_has_no_json_is_named() -> None:
    """What cannot be encoded deep in a value is named by its type."""
    with pytest.raises(PublishError, match=r"dict cannot be encoded .*unknown type: <class 'object'>"):
        encoder()({"a": object()})
