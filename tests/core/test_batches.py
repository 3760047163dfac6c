"""What happens to a batch: decoding, the call, and what is returned."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import pytest
from pydantic import Field
from pystream import (
    FAIL_FAST,
    BatchContext,
    FailurePolicy,
    Out,
    Outcome,
    Settle,
    Settled,
    State,
    ack,
    drop,
    retry,
    retry_after,
)

from tests.core.batches import STEADY, Order, order, orders, unreadable
from tests.core.rig import rig
from tests.core.scripted import ScriptedDelivery

pytestmark = pytest.mark.anyio


class TestReading:
    """What the handler receives."""

    @pytest.mark.promise("BATCH-10")
    async def test_the_handler_gets_the_payloads_in_order(self) -> None:
        """A handler of `list[T]` gets the validated payloads of one batch in the order of the stream."""
        calls: list[list[Order]] = []

        async def handler(body: list[Order]) -> None:
            calls.append(body)

        async with rig(handler, *orders(6), batch=3) as running:
            await running.ends(6)

        assert [[item.id for item in call] for call in calls] == [[0, 1, 2], [3, 4, 5]]
        assert all(type(item) is Order for call in calls for item in call)
        assert running.lines[:6] == [f"ack {number}" for number in range(6)]

    @pytest.mark.promise("BATCH-10")
    async def test_bytes_come_raw_and_constraints_hold(self) -> None:
        """`list[bytes]` gets the bodies as they came; the constraints of `list[Annotated[T, ...]]` hold for each."""
        raw: list[bytes] = []
        small: list[int] = []

        async def takes_bytes(body: list[bytes]) -> None:
            raw.extend(body)

        async def takes_small(body: list[Annotated[int, Field(lt=10)]]) -> None:
            small.extend(body)

        items = [ScriptedDelivery("a", b"5"), ScriptedDelivery("b", b"50")]
        async with rig(takes_bytes, *items, batch=2) as running:
            await running.ends(2)

        async with rig(takes_small, *[ScriptedDelivery("a", b"5"), ScriptedDelivery("b", b"50")], batch=2) as running:
            await running.ends(2)

        assert raw == [b"5", b"50"]
        assert small == [5]

    @pytest.mark.promise("BATCH-11")
    async def test_what_cannot_be_read_goes_alone(self) -> None:
        """Unreadable deliveries are settled by the decode policy; the handler gets the others, in order."""
        calls: list[list[int]] = []

        async def handler(body: list[Order], ctx: BatchContext) -> Outcome:
            calls.append([item.id for item in body])
            assert [context.id for context in ctx.contexts] == [str(item.id) for item in body]
            assert ctx.size == len(body)
            return drop()

        broken = order(9, decode_error=ValueError("torn"))
        items = [order(0), unreadable("x"), order(1), broken]
        async with rig(handler, *items, policy=FailurePolicy(decode=retry_after(5)), batch=4) as running:
            await running.ends(4)

        assert calls == [[0, 1]]
        assert running.lines[:4] == ["retry_after x", "retry_after 9", "reject 0", "reject 1"]

    @pytest.mark.promise("BATCH-11")
    async def test_a_wholly_unreadable_batch_is_not_handled(self) -> None:
        """A batch of which nothing can be read does not call the handler, and hooks of the mount see each of it."""
        seen: list[Settled] = []

        async def handler(body: list[Order]) -> None:
            raise AssertionError("called")

        async with rig(handler, unreadable("x"), unreadable("y"), batch=2, hooks=(seen.append,)) as running:
            await running.ends(2)

        assert running.lines[:2] == ["reject x", "reject y"]
        assert [event.outcome for event in seen] == [drop(), drop()]

    @pytest.mark.promise("BATCH-12")
    @pytest.mark.parametrize("limit", [2, 3])
    async def test_the_decode_limit_counts_over_batches(self, limit: int) -> None:
        """At the limit of unreadable ones in a row that one and the unhandled rest of its batch are given back."""
        called = False

        async def handler(body: list[Order]) -> None:
            nonlocal called
            called = True

        items = [order(0), unreadable("x"), unreadable("y"), order(1), unreadable("z")]
        policy = FailurePolicy(decode_limit=limit)
        async with rig(handler, *items, policy=policy, batch=5) as running:
            await running.ends(5)

        if limit == 2:
            assert sorted(running.lines) == ["reject x", "release 0", "release 1", "release y", "release z"]
            assert [step for step, _, _ in running.failures] == ["handler"]
            assert not called
        else:
            assert sorted(running.lines) == ["ack 0", "ack 1", "reject x", "reject y", "reject z"]
            assert called

    @pytest.mark.promise("BATCH-12")
    async def test_a_fail_fast_of_one_gives_the_others_back(self) -> None:
        """With `decode=FAIL_FAST` the unreadable one is dropped and the rest of its batch comes again, unhandled."""

        async def handler(body: list[Order]) -> None:
            raise AssertionError("called")

        items = [order(0), unreadable("x"), order(1)]
        async with rig(handler, *items, policy=FailurePolicy(decode=FAIL_FAST), batch=3) as running:
            await running.ends(3)

        assert sorted(running.lines) == ["reject x", "release 0", "release 1"]
        assert len(running.failures) == 1

    @pytest.mark.promise("BATCH-13")
    async def test_what_belongs_to_the_mount_is_injected(self) -> None:
        """State and publishers are handed over as to any handler, by position and by name."""
        got: list[Any] = []

        async def handler(out: Out[Order], body: list[Order], *, state: State[str], ctx: BatchContext) -> None:
            got.append((state, ctx.subscription, [item.id for item in body]))
            await out.publish(body[0], "copies")

        async with rig(handler, *orders(2), batch=2, state="open") as running:
            await running.ends(2)

        assert got == [("open", "orders", [0, 1])]
        assert [message.payload for message in running.broker.sent] == [b'{"id":0}']

    @pytest.mark.promise("BATCH-14")
    async def test_the_context_shows_every_delivery(self) -> None:
        """`BatchContext` has the subscription, the size, and the id, headers, key and attempt of each delivery."""
        seen: list[Any] = []

        async def handler(body: list[Order], ctx: BatchContext) -> None:
            seen.append((ctx.subscription, ctx.size))
            seen.extend((item.id, dict(item.headers), item.key, item.attempt) for item in ctx.contexts)
            assert ctx.contexts is ctx.contexts

        items = [order(0, headers={"a": b"1"}, count=3), order(1, key="k", headers={"x-pystream-retry-count": b"4"})]
        async with rig(handler, *items, batch=2) as running:
            await running.ends(2)

        assert seen == [
            ("orders", 2),
            ("0", {"a": b"1"}, None, 3),
            ("1", {"x-pystream-retry-count": b"4"}, "k", 5),
        ]

    @pytest.mark.promise("BATCH-14")
    async def test_headers_are_read_only_if_asked_for(self) -> None:
        """A batch handler that looks at no header has none read."""

        async def handler(body: list[Order], ctx: BatchContext) -> None:
            assert ctx.size == 2

        items = orders(2, count=1)
        async with rig(handler, *items, batch=2) as running:
            await running.ends(2)

        assert [item.header_reads for item in items] == [0, 0]


class TestOutcomes:
    """What a returned value does."""

    @pytest.mark.promise("BATCH-15")
    @pytest.mark.parametrize(
        ("returned", "line"),
        [(None, "ack"), (ack(), "ack"), (drop(), "reject"), (retry(), "requeue"), (retry_after(3), "retry_after")],
    )
    async def test_one_outcome_settles_all_alike(self, returned: Outcome | None, line: str) -> None:
        """Nothing, or one outcome, settles every delivery of the batch, once."""

        async def handler(body: list[Order]) -> Outcome | None:
            return returned

        async with rig(handler, *orders(3, count=1), batch=3) as running:
            await running.ends(3)

        assert running.lines[:3] == [f"{line} {number}" for number in range(3)]

    @pytest.mark.promise("BATCH-15")
    @pytest.mark.parametrize("size", [1, 3])
    async def test_its_continuation_runs_once_after_the_last(self, size: int) -> None:
        """The continuation of one outcome for all runs once, after the last settlement."""

        async def handler(body: list[Order]) -> Outcome:
            return drop().and_after(running.journal.add, "continued")

        async with rig(handler, *orders(size), batch=size) as running:
            await running.journal.shows("continued")

        assert running.lines == [*[f"reject {number}" for number in range(size)], "continued"]

    @pytest.mark.promise("BATCH-16")
    async def test_each_delivery_has_its_own(self) -> None:
        """A list gives each delivery its outcome, with the continuation of its own; none stands for `ack()`."""

        async def handler(body: list[Order]) -> list[Outcome | None]:
            note = running.journal.add
            return [ack().and_after(note, "first"), None, drop(), retry_after(2).and_after(note, "last")]

        async with rig(handler, *orders(4), batch=4) as running:
            await running.journal.shows("last")

        assert running.lines == ["ack 0", "first", "ack 1", "reject 2", "retry_after 3", "last"]

    @pytest.mark.promise("BATCH-16")
    @pytest.mark.parametrize("given", [0, 1, 2, 3, 4, 5])
    async def test_too_few_and_too_many(self, given: int, caplog: pytest.LogCaptureFixture) -> None:
        """A missing tail is retried and a surplus ignored, both with one ERROR; as many as there are is right."""

        async def handler(body: list[Order]) -> list[Outcome]:
            return [drop()] * given

        async with rig(handler, *orders(3, count=1), batch=3) as running:
            await running.ends(3)

        assert running.lines == [f"{'reject' if number < given else 'requeue'} {number}" for number in range(3)]
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == (given != 3)
        if given != 3:
            rest = f"the last {3 - given} are retried" if given < 3 else f"the last {given - 3} are ignored"
            assert errors[0] == f"orders: outcomes of a batch: the handler returned {given} for 3 deliveries; {rest}"

    @pytest.mark.promise("BATCH-16")
    @pytest.mark.parametrize("wrong", ["done", retry, [ack()]])
    async def test_a_list_of_something_else_is_a_failure(self, wrong: Any) -> None:
        """A list that was to hold outcomes and holds another value fails the batch, as if the handler had raised."""

        async def handler(body: list[Order]) -> list[Outcome]:
            return [ack(), wrong]

        async with rig(handler, *orders(2), policy=STEADY, batch=2) as running:
            await running.ends(2)

        assert running.lines == ["retry_after 0", "retry_after 1"]

    @pytest.mark.promise("BATCH-20")
    async def test_settle_settles_all(self) -> None:
        """`Settle(outcome)` raised below the handler settles the whole batch, its continuation once; it is no error."""

        async def handler(body: list[Order]) -> None:
            raise Settle(drop().and_after(running.journal.add, "continued"))

        async with rig(handler, *orders(2), policy=FailurePolicy(error=FAIL_FAST), batch=2) as running:
            await running.journal.shows("continued")

        assert running.lines == ["reject 0", "reject 1", "continued"]
        assert running.failures == []


class TestReplies:
    """A list of replies."""

    @pytest.mark.promise("BATCH-17")
    async def test_they_are_published_in_order(self) -> None:
        """Replies are published in order, before anything is acknowledged; their number is free."""

        async def handler(body: list[Order]) -> list[int]:
            return [item.id for item in body for _ in range(2)]

        async with rig(handler, *orders(2), batch=2, reply_to="out") as running:
            await running.ends(2)

        assert running.lines == [*[f"publish out {number}" for number in (0, 0, 1, 1)], "ack 0", "ack 1"]

    @pytest.mark.promise("BATCH-17")
    async def test_a_failed_publish_retries_all(self) -> None:
        """A reply that cannot be published retries every delivery, each with the backoff of its own attempt."""

        async def handler(body: list[Order]) -> list[int]:
            return [item.id for item in body]

        async with rig(handler, order(0, count=1), order(1, count=4), batch=2, reply_to="out") as running:
            running.broker.publish_errors.append(ConnectionError("full"))
            await running.ends(2)

        assert running.lines == ["unpublished out", "retry_after 0", "retry_after 1"]
        first, second = running.journal.delays
        assert 0.8 <= first <= 1.2
        assert 6.4 <= second <= 9.6

    @pytest.mark.promise("BATCH-17")
    async def test_one_that_cannot_be_encoded_publishes_none(self) -> None:
        """If one reply is not of its type nothing is published, and the batch has failed."""

        async def handler(body: list[Order]) -> list[int]:
            wrong: Any = "two"
            return [1, wrong]

        async with rig(handler, *orders(2), policy=STEADY, batch=2, reply_to="out") as running:
            await running.ends(2)

        assert running.lines == ["retry_after 0", "retry_after 1"]

    @pytest.mark.promise("BATCH-17")
    @pytest.mark.parametrize("returned", [None, []])
    async def test_none_and_no_replies_acknowledge(self, returned: list[int] | None) -> None:
        """Nothing to reply acknowledges the batch."""

        async def handler(body: list[Order]) -> list[int] | None:
            return returned

        async with rig(handler, *orders(2), batch=2, reply_to="out") as running:
            await running.ends(2)

        assert running.lines == ["ack 0", "ack 1"]

    @pytest.mark.promise("BATCH-17")
    async def test_an_outcome_publishes_nothing(self) -> None:
        """A handler annotated `list[Reply] | Outcome` that returns an outcome publishes nothing."""

        async def handler(body: list[Order]) -> list[int] | Outcome:
            return drop()

        async with rig(handler, *orders(2), batch=2, reply_to="out") as running:
            await running.ends(2)

        assert running.lines == ["reject 0", "reject 1"]

    @pytest.mark.promise("BATCH-18")
    @pytest.mark.parametrize(
        ("returned", "reply_to", "lines"),
        [
            ([drop(), drop()], None, ["reject 0", "reject 1"]),
            ([drop(), drop()], "out", ["reject 0", "reject 1"]),
            ([7, 8], "out", ["publish out 7", "publish out 8", "ack 0", "ack 1"]),
            ([7, 8], None, ["ack 0", "ack 1"]),
            ([], "out", ["ack 0", "ack 1"]),
            ([], None, ["requeue 0", "requeue 1"]),
            ([7, drop()], "out", ["retry_after 0", "retry_after 1"]),
            ([7, drop()], None, ["retry_after 0", "retry_after 1"]),
            (7, None, ["ack 0", "ack 1"]),
            (7, "out", ["retry_after 0", "retry_after 1"]),
            (retry, None, ["retry_after 0", "retry_after 1"]),
        ],
    )
    async def test_without_an_annotation_the_content_says(
        self, returned: Any, reply_to: str | None, lines: list[str]
    ) -> None:
        """A handler without a return annotation: outcomes alone are outcomes, other lists are replies, no mixture."""

        async def handler(body: list[Order]):  # type: ignore[no-untyped-def]  # that is what is tested
            return returned

        async with rig(handler, *orders(2, count=1), policy=STEADY, batch=2, reply_to=reply_to) as running:
            await running.ends(2)

        assert running.lines == lines

    @pytest.mark.promise("BATCH-18")
    async def test_the_annotation_comes_first(self) -> None:
        """By its annotation a list of outcomes may be one of replies, which then cannot be encoded."""

        async def handler(body: list[Order]) -> list[int]:
            wrong: Any = drop()
            return [wrong, wrong]

        async with rig(handler, *orders(2), policy=STEADY, batch=2, reply_to="out") as running:
            await running.ends(2)

        assert running.lines == ["retry_after 0", "retry_after 1"]
