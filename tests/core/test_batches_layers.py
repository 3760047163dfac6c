"""Consume layers around batches."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pystream import BatchContext, Context, FailurePolicy, Outcome, ack, drop
from pystream.layers import CallNext

from tests.core.batches import numbered
from tests.core.rig import rig
from tests.core.scripted import ScriptedDelivery

pytestmark = pytest.mark.anyio


class TestLayers:
    """How often they are called, what they see, and what they may do."""

    @pytest.mark.promise("BATCH-25")
    async def test_one_call_per_batch(self) -> None:
        """Each layer is called once for a batch, the first outermost, before decoding: it sees unreadable ones, too."""
        seen: list[Any] = []

        async def outer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            seen.append(("outer", ctx.size, [context.id for context in ctx.contexts]))
            ctx.contexts[0].headers["seen"] = b"yes"
            outcome = await call_next(ctx)
            seen.append(("outer", ctx.size, outcome))
            return outcome

        async def inner(ctx: Context | BatchContext, call_next: CallNext) -> Outcome:
            seen.append("inner")
            return await call_next(ctx)

        async def handler(body: list[int], ctx: BatchContext) -> list[Outcome]:
            seen.append((body, ctx.size, ctx.contexts[0].headers["seen"]))
            return [ack(), drop()]

        items = [ScriptedDelivery("0", b"0"), ScriptedDelivery("x", b"?"), ScriptedDelivery("1", b"1")]
        async with rig(handler, *items, batch=3, layers=[outer, inner]) as running:
            await running.ends(3)

        assert seen == [
            ("outer", 3, ["0", "x", "1"]),
            "inner",
            ([0, 1], 2, b"yes"),
            ("outer", 2, [ack(), drop()]),
        ]
        assert running.lines == ["reject x", "ack 0", "reject 1"]

    @pytest.mark.promise("BATCH-25")
    @pytest.mark.parametrize(
        ("decision", "lines"),
        [
            (drop(), ["reject 0", "reject 1"]),
            ([ack(), drop()], ["ack 0", "reject 1"]),
            ([drop()], ["reject 0", "requeue 1"]),
        ],
    )
    async def test_a_layer_may_decide(self, decision: Any, lines: list[str]) -> None:
        """A layer may settle a batch without the handler, alike or one by one, and is held to the number."""

        async def layer(ctx: BatchContext, call_next: CallNext) -> Any:
            return decision

        async def handler(body: list[int]) -> None:
            raise AssertionError("called")

        async with rig(handler, *numbered(2), batch=2, layers=[layer]) as running:
            await running.ends(2)

        assert running.lines == lines

    @pytest.mark.promise("BATCH-25")
    async def test_a_raise_after_the_handler_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """A layer that raises after `call_next` changes nothing of what was decided, and is logged."""

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            await call_next(ctx)
            raise ValueError("late")

        async def handler(body: list[int]) -> list[Outcome]:
            return [drop(), ack()]

        async with rig(handler, *numbered(2), batch=2, layers=[layer]) as running:
            await running.ends(2)

        assert running.lines == ["reject 0", "ack 1"]
        assert [record.levelno for record in caplog.records] == [logging.ERROR]

    @pytest.mark.promise("BATCH-25")
    async def test_a_raise_before_the_handler_is_its_failure(self) -> None:
        """A layer that raises before `call_next`, or lets a failure through, fails the batch."""

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            raise ValueError("early")

        async def handler(body: list[int]) -> None:
            raise AssertionError("called")

        policy = FailurePolicy(error=drop())
        async with rig(handler, *numbered(2), policy=policy, batch=2, layers=[layer]) as running:
            await running.ends(2)

        assert running.lines == ["reject 0", "reject 1"]

    @pytest.mark.promise("BATCH-25")
    async def test_a_layer_may_call_on_twice(self) -> None:
        """A layer may run the handler again; what could not be read is not settled again."""
        calls: list[list[int]] = []

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            try:
                return await call_next(ctx)
            except ValueError:
                return await call_next(ctx)

        async def handler(body: list[int]) -> None:
            calls.append(body)
            if len(calls) == 1:
                raise ValueError

        items = [ScriptedDelivery("0", b"0"), ScriptedDelivery("x", b"?"), ScriptedDelivery("1", b"1")]
        async with rig(handler, *items, batch=3, layers=[layer]) as running:
            await running.ends(3)

        assert calls == [[0, 1], [0, 1]]
        assert running.lines == ["reject x", "ack 0", "ack 1"]

    @pytest.mark.promise("BATCH-25")
    async def test_the_second_call_counts(self) -> None:
        """Where a layer calls on twice the batch ends as the second call says, also if that raises."""
        calls = 0

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            await call_next(ctx)
            return await call_next(ctx)

        async def handler(body: list[int]) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise ValueError

        policy = FailurePolicy(error=drop())
        async with rig(handler, *numbered(2), policy=policy, batch=2, layers=[layer]) as running:
            await running.ends(2)

        assert running.lines == ["reject 0", "reject 1"]

    @pytest.mark.promise("BATCH-25")
    async def test_after_nothing_could_be_read_a_raise_is_logged_alone(self, caplog: pytest.LogCaptureFixture) -> None:
        """A layer that raises when nothing of the batch is left to settle is logged, and the loop goes on."""

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            await call_next(ctx)
            raise ValueError("late")

        async def handler(body: list[int]) -> None:
            raise AssertionError("called")

        async with rig(handler, ScriptedDelivery("x", b"?"), batch=1, layers=[layer]) as running:
            await running.ends(1)

        assert running.lines == ["reject x"]
        assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
