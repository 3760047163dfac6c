"""Batches on every form that takes them: bounds, order, stops, context variables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from pystream import FAIL_FAST, BatchContext, FailurePolicy, Outcome, Settled, ack, drop, retry
from pystream.layers import CallNext
from pystream.protocols import GAP
from pystream.signal import Signal

from tests.core.batches import numbered, quiet_log
from tests.core.lifecycle.support import until
from tests.core.rig import Rig, idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedSource
from tests.core.threading_support import form_of, still

FORMS: list[Any] = [
    pytest.param({}, id="default"),
    pytest.param({"workers": 3}, id="workers=3"),
    pytest.param({"threads": 1}, id="threads=1"),
    pytest.param({"threads": 2}, id="threads=2"),
]

request: ContextVar[str] = ContextVar("request", default="nobody's")


class Gate:
    """A handler whose batches wait, each on its loop, until the test lets them go.

    Attributes:
        begun: The batches in the order in which they began.
        threads: The names of the threads that ran them.
    """

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.threads: set[str] = set()
        self._gates: list[Signal] = []

    async def handle(self, body: list[int]) -> None:
        gate = Signal()
        self._gates.append(gate)
        self.threads.add(threading.current_thread().name)
        self.begun.append(body)
        await gate.wait()

    async def let_all_go(self, running: Rig, count: int) -> None:
        with anyio.fail_after(10):
            while running.stream.ends < count:
                for gate in list(self._gates):
                    gate.wake_from_thread()

                await checkpoint()


@pytest.mark.anyio
class TestBounds:
    """How many batches a form holds."""

    @pytest.mark.promise("BATCH-29")
    @pytest.mark.parametrize(("form", "batches"), [({}, 1), ({"workers": 3}, 3)])
    async def test_workers_run_whole_batches(self, form: dict[str, Any], batches: int) -> None:
        """As many batches are handled at once as there are workers, each with up to n; no more is taken."""
        gate = Gate()
        async with rig(gate.handle, *numbered(40), batch=4, **form) as running:
            await idle(60)
            assert sorted(gate.begun) == [list(range(4 * n, 4 * n + 4)) for n in range(batches)]
            assert len(running.stream.taken) == 4 * batches
            await gate.let_all_go(running, 40)

        assert running.stream.most_unsettled == 4 * batches

    @pytest.mark.promise("BATCH-29")
    async def test_a_partial_batch_is_filled_by_whoever_is_free(self) -> None:
        """While some workers handle batches another fills the next, which goes out at its time."""
        gate = Gate()
        async with rig(gate.handle, *numbered(6), batch=4, batch_wait=1, workers=2) as running:
            await idle()
            assert gate.begun == [[0, 1, 2, 3]]
            running.clock.advance(1)
            await idle()
            assert gate.begun == [[0, 1, 2, 3], [4, 5]]
            await gate.let_all_go(running, 6)

    @pytest.mark.promise("BATCH-30")
    @pytest.mark.parametrize("size", [1, 2])
    async def test_threads_hold_nine_batches_each(self, size: int) -> None:
        """`threads=n` holds n x 9 whole batches: one in the hand of each thread and eight in its ring."""
        gate = Gate()
        bound = size * 9 * 2
        items = numbered(bound + 10)
        async with rig(gate.handle, *items[: 2 * size], batch=2, threads=size) as running:
            await until(lambda: len(gate.begun) == size)
            running.feed(*items[2 * size :])
            await until(lambda: len(running.stream.taken) == bound)
            await still(form_of(running))
            assert (len(running.stream.taken), len(gate.begun)) == (bound, size)
            await gate.let_all_go(running, bound + 10)

        assert running.stream.most_unsettled == bound
        assert gate.threads == {f"orders thread {index}" for index in range(size)}

    @pytest.mark.promise("BATCH-30")
    async def test_a_thread_alone_keeps_the_order(self) -> None:
        """On one thread batches are handled in the order of the stream, and their number of deliveries is kept."""
        calls: list[list[int]] = []

        async def handler(body: list[int]) -> None:
            calls.append(body)

        async with rig(handler, *numbered(100), batch=7, threads=1) as running:
            await until(lambda: running.stream.ends == 98 and running.subscription.filling == 2)
            running.clock.advance(0.01)
            await until(lambda: running.stream.ends == 100)

        assert [number for call in calls for number in call] == list(range(100))
        assert [len(call) for call in calls] == [7] * 14 + [2]


@pytest.mark.anyio
class TestTheEnd:
    """What becomes of batches at a stop, on every form."""

    @pytest.mark.promise("BATCH-6")
    @pytest.mark.parametrize("form", FORMS)
    async def test_a_stop_handles_what_was_being_filled(self, form: dict[str, Any]) -> None:
        """A batch that is being filled when the stop comes is handled and settled."""
        calls: list[list[int]] = []

        async def handler(body: list[int]) -> None:
            calls.append(body)

        async with rig(handler, *numbered(2), batch=4, batch_wait=60, **form) as running:
            await until(lambda: running.subscription.filling == 2)
            await running.stop()

        assert calls == [[0, 1]]
        assert sorted(running.lines) == ["ack 0", "ack 1"]

    @pytest.mark.promise("BATCH-4")
    @pytest.mark.parametrize("form", FORMS)
    async def test_a_cut_hands_on_what_was_being_filled(self, form: dict[str, Any]) -> None:
        """A batch that a seek cuts is handled as it is."""
        calls: list[list[int]] = []

        async def handler(body: list[int]) -> None:
            calls.append(body)

        items = numbered(4)
        async with rig(handler, *items[:3], GAP, items[3], batch=9, batch_wait=60, **form) as running:
            await until(lambda: running.stream.ends == 3)
            assert calls == [[0, 1, 2]]

        assert calls == [[0, 1, 2], [3]]

    @pytest.mark.promise("BATCH-24")
    @pytest.mark.parametrize("form", FORMS)
    async def test_a_cancellation_gives_everything_back(self, form: dict[str, Any]) -> None:
        """Cancelled, a form gives back the batches it handles, those that wait, and the one being filled, once each."""
        gate = Gate()
        async with rig(gate.handle, *numbered(11), batch=4, batch_wait=60, **form) as running:
            await until(lambda: len(gate.begun) >= 1)
            await idle()
            running.subscription.cancel()
            await running.finished()

        taken = sorted(f"release {item.id}" for item in running.stream.taken)
        assert sorted(running.lines) == taken

    @pytest.mark.promise("BATCH-24")
    async def test_nothing_overtakes_on_one_thread(self) -> None:
        """A fail-fast on a single thread gives back, unhandled, the batches that wait behind the one that failed."""
        calls: list[list[int]] = []

        async def handler(body: list[int]) -> None:
            calls.append(body)
            await until(lambda: len(running.stream.taken) == 10)
            raise ValueError("fatal")

        async with rig(handler, *numbered(10), policy=FailurePolicy(error=FAIL_FAST), batch=2, threads=1) as running:
            await running.finished()

        assert calls == [[0, 1]]
        assert sorted(running.lines) == sorted(f"release {number}" for number in range(10))
        assert [str(error) for _, _, error in running.failures] == ["fatal"]

    @pytest.mark.promise("BATCH-22")
    @pytest.mark.parametrize("form", FORMS)
    async def test_runs_in_place_on_every_form(self, form: dict[str, Any]) -> None:
        """A smaller batch is run again by the task or thread that has it in hand."""
        calls: list[tuple[list[int], str]] = []

        async def handler(body: list[int]) -> list[Outcome]:
            calls.append((body, threading.current_thread().name))
            return [retry() if len(body) == 3 and number == 1 else ack() for number in body]

        source = ScriptedSource(retry="in_place")
        async with rig(handler, *numbered(3), source=source, batch=3, **form) as running:
            await until(lambda: running.stream.ends == 2)
            if "threads" not in form:
                await running.timer()
                running.clock.advance(0.1)

            await until(lambda: running.stream.ends == 3)

        assert [call[0] for call in calls] == [[0, 1, 2], [1]]
        assert calls[0][1] == calls[1][1]
        assert running.lines == ["ack 0", "ack 2", "ack 1"]


@pytest.mark.anyio
class TestPlainHandlers:
    """Handlers that are no coroutine functions."""

    @pytest.mark.promise("BATCH-31")
    @pytest.mark.parametrize("form", FORMS)
    async def test_they_get_batches_too(self, form: dict[str, Any]) -> None:
        """A `def` handler gets batches on every form, off the app's loop, in the context variables of its batch."""
        calls: list[tuple[list[int], str]] = []

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            request.set(ctx.contexts[0].id)
            return await call_next(ctx)

        def handler(body: list[int], batch: BatchContext) -> list[Outcome]:
            assert threading.current_thread() is not threading.main_thread()
            calls.append((body, request.get()))
            assert batch.size == len(body)
            return [drop() if number == 2 else ack() for number in body]

        async with rig(handler, *numbered(4), batch=2, layers=[layer], **form) as running:
            await until(lambda: running.stream.ends == 4)

        assert sorted(calls) == [([0, 1], "0"), ([2, 3], "2")]
        assert sorted(running.lines) == ["ack 0", "ack 1", "ack 3", "reject 2"]

    @pytest.mark.promise("BATCH-31")
    async def test_as_many_run_at_once_as_there_are_workers(self) -> None:
        """With `workers=n` n batches run at once on threads, and what one raises fails its batch alone."""
        barrier = threading.Barrier(3, timeout=10)

        def handler(body: list[int]) -> None:
            barrier.wait()
            if 0 in body:
                raise ValueError

        policy = FailurePolicy(error=drop())
        async with rig(handler, *numbered(6), policy=policy, batch=2, workers=3) as running:
            await until(lambda: running.stream.ends == 6)

        assert sorted(running.lines) == ["ack 2", "ack 3", "ack 4", "ack 5", "reject 0", "reject 1"]


@pytest.mark.anyio
class TestContextVariables:
    """Each batch runs in a fresh copy of the application's."""

    @pytest.mark.promise("BATCH-33")
    @pytest.mark.parametrize("form", FORMS)
    async def test_a_batch_sees_its_own(self, form: dict[str, Any]) -> None:
        """What a layer sets is seen by the handler, continuation and hooks of its batch, and by no other batch."""
        seen: list[tuple[str, str]] = []

        def note(what: str) -> None:
            seen.append((what, request.get()))

        async def layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
            note("before")
            request.set(ctx.contexts[0].id)
            return await call_next(ctx)

        async def handler(body: list[int], ctx: BatchContext) -> Outcome:
            note(f"handler {body[0]}")
            ctx.after_settle(note, f"hook {body[0]}")
            return ack().and_after(note, f"continuation {body[0]}")

        def post_settle(event: Settled) -> None:
            note("post_settle")

        async with rig(handler, *numbered(4), batch=2, layers=[layer], hooks=(post_settle,), **form) as running:
            await until(lambda: running.stream.ends == 4)

        assert [value for what, value in seen if what == "before"] == ["nobody's", "nobody's"]
        for first in ("0", "2"):
            mine = [what for what, value in seen if value == first]
            assert mine == [f"handler {first}", "post_settle", f"continuation {first}", f"hook {first}", "post_settle"]


# The drain law, under random schedules.


Finale = Literal["none", "stop", "cancel"]


@dataclass(frozen=True)
class Schedule:
    """Deliveries by their fate, how they come, and how it ends."""

    fates: tuple[str, ...]
    moves: tuple[str, ...]
    in_place: bool
    size: int
    finale: Finale


schedules = st.builds(
    Schedule,
    fates=st.lists(st.sampled_from("aaaadrxu"), max_size=14).map(tuple),
    moves=st.lists(st.sampled_from(["feed", "feed", "run", "tick", "gap"]), max_size=24).map(tuple),
    in_place=st.booleans(),
    size=st.integers(1, 4),
    finale=st.sampled_from(["none", "stop", "cancel"]),
)


async def _play(schedule: Schedule, form: dict[str, Any]) -> None:
    fates = dict(enumerate(schedule.fates))
    handled: dict[int, int] = {}

    async def handler(body: list[int]) -> list[Outcome]:
        assert 1 <= len(body) <= schedule.size
        assert body == sorted(body)
        for _ in range(sum(body) % 3):
            await checkpoint()

        fails = [number for number in body if fates[number] == "x" and not handled.get(number)]
        for number in body:
            handled[number] = handled.get(number, 0) + 1

        if fails:
            raise ValueError

        return [_outcome(fates[number], again=schedule.in_place and handled[number] > 1) for number in body]

    left = [
        DelayableDelivery(str(number), b"?" if fate == "u" else b"%d" % number, count=1)
        for number, fate in fates.items()
    ]
    source = ScriptedSource(retry="in_place" if schedule.in_place else "broker")
    async with rig(handler, source=source, batch=schedule.size, batch_wait=1, **form) as running:
        for move in schedule.moves:
            await _move(move, running, left)

        if schedule.finale == "none":
            running.feed(*left)
            await _until(lambda: not running.stream.items and not running.stream.unsettled, running)

        taken = len(running.stream.taken)
        running.subscription.stop()
        if schedule.finale == "cancel":
            running.subscription.cancel()

        await _until(lambda: not running.subscription.running, running)
        assert len(running.stream.taken) == taken, "something was taken after the stop"

    _check(schedule, running, handled)


def _check(schedule: Schedule, running: Rig, handled: dict[int, int]) -> None:
    for item in running.stream.taken:
        number = int(item.id)
        fate = schedule.fates[number]
        assert len(item.ends) == 1, f"{item.id} ended {item.ends}"
        if item.ends == ["release"]:
            assert schedule.finale == "cancel" or (schedule.in_place and handled.get(number)), "given back"
        elif item.ends != ["reject"] or fate != "u":
            assert handled.get(number), f"{item.id} was settled unhandled"

        assert fate != "u" or number not in handled, "unreadable, and handled"


def _outcome(fate: str, *, again: bool) -> Outcome:
    if again:
        return ack()

    return {"a": ack(), "d": drop(), "r": retry(), "x": ack()}[fate]


async def _move(move: str, running: Rig, left: list[DelayableDelivery]) -> None:
    if move == "feed" and left:
        running.feed(left.pop(0))
    elif move == "gap":
        running.feed(GAP)
    elif move == "tick":
        running.clock.advance(1)
    elif move == "run":
        await idle(3)


async def _until(condition: Callable[[], bool], running: Rig) -> None:
    for _ in range(400):
        if condition():
            return

        running.clock.advance(100)
        await checkpoint()

    raise AssertionError("not everything was handled without a stop, or the form did not end")


@pytest.mark.promise("BATCH-34")
@pytest.mark.parametrize("form", [{}, {"workers": 2}, {"workers": 3}])
@given(schedule=schedules)
@settings(max_examples=200)
def test_every_delivery_ends_once(form: dict[str, Any], schedule: Schedule) -> None:
    """Whatever comes, fails and stops: each delivery taken is handled and settled, or given back, once."""
    with quiet_log():
        anyio.run(_play, schedule, form)
