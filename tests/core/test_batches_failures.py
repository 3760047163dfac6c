"""What happens to a batch that fails, or is run again in place; and what follows the settlements."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pystream import (
    FAIL_FAST,
    BatchContext,
    FailurePolicy,
    Outcome,
    Settled,
    ack,
    dead_letter,
    drop,
    retry,
    retry_after,
)

from tests.core.batches import IN_PLACE, STEADY, Order, order, orders, unreadable
from tests.core.rig import Rig, eventually, idle, rig
from tests.core.scripted import ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio


class TestFailures:
    """What a raise does."""

    @pytest.mark.promise("BATCH-19")
    async def test_each_delivery_goes_by_its_own_attempt(self) -> None:
        """A handler that raises settles every delivery by the error policy, with the attempt of its own."""

        async def handler(body: list[Order]) -> None:
            raise ValueError

        items = [order(0, count=1), order(1, count=3), order(2, count=2)]
        async with rig(handler, *items, policy=STEADY, batch=3) as running:
            await running.ends(3)

        assert running.lines == ["retry_after 0", "retry_after 1", "retry_after 2"]
        assert running.journal.delays == [1.0, 4.0, 2.0]

    @pytest.mark.promise("BATCH-19")
    async def test_some_may_be_at_the_cap(self) -> None:
        """Of a batch that failed, what is at its last attempt goes to the dead letters, and the rest is retried."""

        async def handler(body: list[Order]) -> None:
            raise ValueError

        items = [order(0, count=2), order(1, count=3), order(2, count=1)]
        async with rig(handler, *items, policy=STEADY, batch=3, max_attempts=3, dead_letter="dead") as running:
            await running.ends(3)

        assert running.lines == ["retry_after 0", 'publish dead {"id": 1}', "ack 1", "retry_after 2"]

    @pytest.mark.promise("BATCH-37")
    @pytest.mark.parametrize(("count", "handled"), [(2, True), (3, True), (4, False)])
    async def test_what_comes_past_the_cap_is_not_handled(self, count: int, handled: bool) -> None:
        """A delivery that arrives with more attempts than the cap goes to the dead letters without the handler."""
        seen: list[int] = []

        async def handler(body: list[Order]) -> None:
            seen.extend(item.id for item in body)

        items = [order(0, count=1), order(1, count=count)]
        async with rig(handler, *items, batch=2, max_attempts=3, dead_letter="dead") as running:
            await running.ends(2)

        assert seen == ([0, 1] if handled else [0])
        assert len(running.broker.sent) == (not handled)

    @pytest.mark.promise("BATCH-24")
    async def test_a_fail_fast_leaves_all_unsettled(self) -> None:
        """A failure that stops the service leaves the whole batch to come again, and is told once."""

        async def handler(body: list[Order]) -> None:
            raise ValueError("fatal")

        async with rig(handler, *orders(3), policy=FailurePolicy(error=FAIL_FAST), batch=3) as running:
            await running.ends(3)

        assert sorted(running.lines) == ["release 0", "release 1", "release 2"]
        assert [str(error) for _, _, error in running.failures] == ["fatal"]

    @pytest.mark.promise("BATCH-24")
    async def test_a_fail_fast_for_one_attempt_is_one_for_all(self) -> None:
        """A policy that stops the service for one delivery of the batch leaves those before it unsettled, too."""

        async def handler(body: list[Order]) -> None:
            raise ValueError("fatal")

        def rule(error: Exception, attempt: int) -> Any:
            return FAIL_FAST if attempt == 2 else drop()

        items = [order(0, count=1), order(1, count=2), order(2, count=1)]
        async with rig(handler, *items, policy=FailurePolicy(error=rule), batch=3) as running:
            await running.ends(3)

        assert sorted(running.lines) == ["release 0", "release 1", "release 2"]

    @pytest.mark.promise("BATCH-24")
    async def test_a_cancelled_batch_is_given_back(self) -> None:
        """A cancellation by the stop gives every delivery of the batch back, and what was being filled."""
        begun = 0

        async def handler(body: list[Order]) -> None:
            nonlocal begun
            begun += 1
            await eventually(lambda: False)

        async with rig(handler, *orders(5), batch=2, workers=3) as running:
            await eventually(lambda: begun == 2)
            await idle()
            running.subscription.cancel()
            await running.finished()

        assert sorted(running.lines) == [f"release {number}" for number in range(5)]

    @pytest.mark.promise("BATCH-24")
    async def test_a_cancellation_between_settlements(self) -> None:
        """Cancelled while a settlement waits for a place, what is not settled is given back, once each."""
        gate = anyio.Event()

        async def handler(body: list[Order]) -> list[Outcome]:
            return [ack().and_after(gate.wait) for _ in body]

        async with rig(handler, *orders(4), batch=4, max_tracked=1) as running:
            await running.ends(1)
            await idle()
            running.subscription.cancel()
            await running.subscription.finished()
            gate.set()

        assert running.lines[0] == "ack 0"
        assert sorted(running.lines[1:]) == ["release 1", "release 2", "release 3"]

    @pytest.mark.promise("BATCH-24")
    async def test_a_cancellation_within_a_settlement(self) -> None:
        """Cancelled while an acknowledgement is under way, what comes after it is given back."""

        class Slow(ScriptedDelivery):
            async def ack(self) -> None:
                await super().ack()
                await eventually(lambda: False)

        async def handler(body: list[Order]) -> None: ...

        async with rig(handler, order(0), Slow("1", b'{"id": 1}'), order(2), batch=3) as running:
            await running.ends(2)
            running.subscription.cancel()
            await running.finished()

        assert running.lines == ["ack 0", "ack 1", "release 2"]

    @pytest.mark.promise("BATCH-24")
    async def test_an_outcome_that_cannot_be_had(self) -> None:
        """A delay that the source cannot hold is a failure of that delivery; a fail-fast of it is one of all."""

        async def handler(body: list[Order]) -> list[Outcome]:
            return [ack(), retry_after(100), ack()]

        short = ScriptedSource(max_delay=10)
        for policy, lines in (
            (FailurePolicy(error=drop()), ["ack 0", "reject 1", "ack 2"]),
            (FailurePolicy(error=FAIL_FAST), ["release 0", "release 1", "release 2"]),
        ):
            async with rig(handler, *orders(3), source=short, policy=policy, batch=3) as running:
                await running.ends(3)

            assert sorted(running.lines) == sorted(lines)


class TestInPlace:
    """Sources whose retries are run by the handling task."""

    @pytest.mark.promise("BATCH-21")
    async def test_a_smaller_batch_runs_again(self) -> None:
        """The others are settled first; the retried ones run again, in order, after the longest of their delays."""
        calls: list[tuple[list[int], list[int]]] = []

        async def handler(body: list[Order], ctx: BatchContext) -> list[Outcome]:
            calls.append(([item.id for item in body], [context.attempt for context in ctx.contexts]))
            if len(calls) > 1:
                return [ack()] * len(body)

            return [retry_after(3), ack(), retry(), drop()]

        async with rig(handler, *orders(8, count=1), source=IN_PLACE, batch=4) as running:
            await running.ends(2)
            assert running.lines == ["ack 1", "reject 3"]
            await running.timer()
            running.clock.advance(2.9)
            await idle()
            assert len(calls) == 1, "and the next batch waits behind it"
            running.clock.advance(0.1)
            await running.ends(8)

        assert calls == [([0, 1, 2, 3], [1, 1, 1, 1]), ([0, 2], [2, 2]), ([4, 5, 6, 7], [1, 1, 1, 1])]
        assert running.lines[2:4] == ["ack 0", "ack 2"]

    @pytest.mark.promise("BATCH-21")
    async def test_it_is_counted_locally(self) -> None:
        """Each run in place counts: at the cap the delivery goes to the dead letters, the others go on."""
        calls: list[list[int]] = []

        async def handler(body: list[Order]) -> list[Outcome]:
            calls.append([item.id for item in body])
            return [retry() for _ in body]

        items = [order(0, count=2), order(1, count=1)]
        async with rig(handler, *items, source=IN_PLACE, batch=2, max_attempts=3, dead_letter="dead") as running:
            for _ in range(2):
                await running.timer()
                running.clock.advance(0.1)
                await idle()

            await running.ends(2)

        assert calls == [[0, 1], [0, 1], [1]]
        assert running.lines == ['publish dead {"id": 0}', "ack 0", 'publish dead {"id": 1}', "ack 1"]

    @pytest.mark.promise("BATCH-21")
    async def test_unreadable_ones_may_run_again_too(self) -> None:
        """A decode policy that retries runs an unreadable delivery again with the others, in order."""
        seen: list[list[int]] = []

        async def handler(body: list[Order]) -> Outcome:
            seen.append([item.id for item in body])
            return retry() if len(seen) == 1 else ack()

        bad = unreadable("x")
        policy = FailurePolicy(decode=retry())
        async with rig(handler, order(0), bad, order(1), source=IN_PLACE, policy=policy, batch=3) as running:
            await running.timer()
            bad.payload = b'{"id": 7}'
            running.clock.advance(0.1)
            await running.ends(3)

        assert seen == [[0, 1], [0, 7, 1]]

    @pytest.mark.promise("BATCH-22")
    async def test_a_stop_during_the_wait_leaves_them_unsettled(self) -> None:
        """A stop while a smaller batch waits for its next run gives it back."""

        async def handler(body: list[Order]) -> list[Outcome]:
            return [retry(), ack()]

        async with rig(handler, *orders(2), source=IN_PLACE, batch=2) as running:
            await running.timer()
            await running.stop()

        assert running.lines == ["ack 1", "release 0"]

    @pytest.mark.promise("BATCH-21")
    async def test_deliveries_may_differ(self) -> None:
        """A delivery that says by itself who retries it is settled, or run again, accordingly."""

        async def handler(body: list[Order], ctx: BatchContext) -> Outcome:
            return retry() if ctx.contexts[0].attempt == 1 else ack()

        items = [order(0, count=1), order(1, count=1, retry="broker")]
        async with rig(handler, *items, source=IN_PLACE, batch=2) as running:
            await running.timer()
            assert running.lines == ["requeue 1"]
            running.clock.advance(0.1)
            await running.ends(2)

        assert running.lines == ["requeue 1", "ack 0"]


class TestHooks:
    """What follows the settlements."""

    @pytest.mark.promise("BATCH-23")
    async def test_once_per_batch_and_once_per_delivery(self) -> None:
        """Hooks of the batch's context run once, after the last settlement; `post_settle` once for each delivery."""
        events: list[Settled] = []

        async def handler(body: list[Order], ctx: BatchContext) -> list[Outcome]:
            note = running.journal.add
            ctx.after_settle(note, "settled")
            ctx.after_ack(note, "some acknowledged")
            ctx.after("drop", note, "some dropped")
            ctx.after("retry", note, "some retried")
            ctx.contexts[0].after_ack(note, "the first")
            return [ack(), drop(), ack()]

        def post_settle(event: Settled) -> None:
            events.append(event)

        async with rig(handler, *orders(3, count=2), batch=3, hooks=(post_settle,)) as running:
            await running.journal.shows("some dropped")

        assert running.lines == [
            "ack 0",
            "the first",
            "reject 1",
            "ack 2",
            "settled",
            "some acknowledged",
            "some dropped",
        ]
        assert [(event.outcome, event.attempt) for event in events] == [(ack(), 2), (drop(), 2), (ack(), 2)]

    @pytest.mark.promise("BATCH-23")
    async def test_what_was_not_in_the_list_calls_for_nothing(self) -> None:
        """A hook for dropped deliveries is not called for one that was dropped since it could not be read."""

        async def handler(body: list[Order], ctx: BatchContext) -> None:
            ctx.after("drop", running.journal.add, "dropped")

        async with rig(handler, order(0), unreadable("x"), batch=2) as running:
            await running.ends(2)

        assert running.lines == ["reject x", "ack 0"]

    @pytest.mark.promise("BATCH-23")
    async def test_a_task_may_follow_with_one_place(self) -> None:
        """Coroutine functions run as tracked tasks, also where there is but one place for all."""

        async def note(text: str) -> None:
            running.journal.add(text)

        async def handler(body: list[Order], ctx: BatchContext) -> Outcome:
            ctx.after_settle(note, "hook")
            return ack().and_after(note, "continuation")

        async def post_settle(event: Settled) -> None:
            running.journal.add("post_settle")

        async with rig(handler, *orders(2), batch=2, max_tracked=1, hooks=(post_settle,)) as running:
            await eventually(lambda: len(running.lines) == 6)

        assert sorted(running.lines) == ["ack 0", "ack 1", "continuation", "hook", "post_settle", "post_settle"]

    @pytest.mark.promise("BATCH-23")
    async def test_a_run_in_place_has_hooks_of_its_own(self) -> None:
        """What is left in the context of a run that settled nothing is dropped with it."""
        runs = 0

        async def handler(body: list[Order], ctx: BatchContext) -> Outcome:
            nonlocal runs
            runs += 1
            ctx.after_settle(running.journal.add, f"after run {runs}")
            return retry() if runs == 1 else ack()

        async with rig(handler, *orders(2), source=IN_PLACE, batch=2) as running:
            await running.timer()
            running.clock.advance(0.1)
            await running.ends(2)

        assert running.lines == ["ack 0", "ack 1", "after run 2"]


class TestCaseC04:
    """A batch that holds exactly one message."""

    @pytest.mark.promise("BATCH-32")
    async def test_one_dead_letter(self) -> None:
        """A single bad message in a batch of eight becomes one dead letter, acknowledged, and is not seen again."""
        calls = 0

        async def handler(body: list[Order]) -> list[Outcome]:
            nonlocal calls
            calls += 1
            return [dead_letter("bad")]

        async with rig(handler, order(0, count=1), batch=8, dead_letter="dead") as running:
            await _pass(running, 0.01)
            await running.ends(1)
            await _pass(running, 3)

        assert calls == 1
        assert running.lines == ['publish dead {"id": 0}', "ack 0"]

    @pytest.mark.promise("BATCH-32")
    async def test_a_handler_that_raises(self) -> None:
        """With `max_attempts=2` a single message whose handler raises is seen twice, then a dead letter, once."""
        calls = 0

        async def handler(body: list[Order]) -> list[Outcome]:
            nonlocal calls
            calls += 1
            raise ValueError("bad")

        settings: dict[str, Any] = {"batch": 8, "dead_letter": "dead", "max_attempts": 2}
        async with rig(handler, order(0, count=1), policy=STEADY, **settings) as running:
            await _pass(running, 0.01)
            await running.ends(1)
            running.feed(order(0, count=2))
            await _pass(running, 0.01)
            await running.ends(2)
            await _pass(running, 3)

        assert calls == 2
        assert running.lines == ["retry_after 0", 'publish dead {"id": 0}', "ack 0"]

    @pytest.mark.promise("BATCH-32")
    async def test_only_the_last_one_fails(self) -> None:
        """Where the last of a batch alone is bad it alone becomes a dead letter; the others are acknowledged."""
        calls = 0

        async def handler(body: list[Order]) -> list[Outcome]:
            nonlocal calls
            calls += 1
            return [*[ack()] * (len(body) - 1), dead_letter("bad")]

        async with rig(handler, *orders(3, count=1), batch=8, dead_letter="dead") as running:
            await _pass(running, 0.01)
            await running.ends(3)
            await _pass(running, 3)

        assert calls == 1
        assert running.lines == ["ack 0", "ack 1", 'publish dead {"id": 2}', "ack 2"]


async def _pass(running: Rig, seconds: float) -> None:
    await idle()
    running.clock.advance(seconds)
    await idle()
