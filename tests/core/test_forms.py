"""The dispatch forms: how many deliveries they hold, in which order, on which tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pystream import Context, FailurePolicy, Outcome, by_key, retry_after
from pystream._runtime.forms import make_form
from pystream._runtime.forms.lanes import Lanes
from pystream._runtime.forms.pool import Pool
from pystream._runtime.forms.sequential import Sequential
from pystream.failures import FAIL_FAST
from pystream.protocols import GAP
from pystream.subscriber import ByKey

from tests.core.rig import Rig, eventually, idle, rig
from tests.core.scripted import DelayableDelivery, Item, ScriptedDelivery, ScriptedSource

_FORMS = [
    pytest.param(1, id="default"),
    pytest.param(2, id="workers=2"),
    pytest.param(5, id="workers=5"),
    pytest.param(by_key(2), id="by_key(2)"),
    pytest.param(by_key(5), id="by_key(5)"),
]
IN_PLACE = ScriptedSource(retry="in_place")


class Key(str):
    """A key whose lane is known: that of its number."""

    __slots__ = ()

    def __hash__(self) -> int:
        return int(self)


class Gates:
    """A handler whose deliveries wait until the test lets them go.

    Attributes:
        running: The ids of those that wait, in the order in which they began.
        tasks: The name of the task that ran each.
    """

    def __init__(self) -> None:
        self.running: list[str] = []
        self.begun: list[str] = []
        self.tasks: dict[str, str] = {}
        self._gates: dict[str, anyio.Event] = {}

    async def handle(self, body: bytes, context: Context) -> None:
        gate = self._gates[context.id] = anyio.Event()
        self.begun.append(context.id)
        self.running.append(context.id)
        self.tasks[context.id] = anyio.get_current_task().name or ""
        await gate.wait()
        self.running.remove(context.id)

    async def let_go(self, *ids: str) -> None:
        for id_ in ids:
            self._gates[id_].set()

        await idle()

    async def let_all_go(self, running: Rig, count: int) -> None:
        with anyio.fail_after(10):
            while running.stream.ends < count:
                await self.let_go(*self.running)


def _deliveries(count: int, key: Callable[[int], Any] = lambda number: None) -> list[ScriptedDelivery]:
    return [ScriptedDelivery(str(number), key=key(number)) for number in range(1, count + 1)]


@pytest.mark.promise("DISPATCH-1")
def test_workers_choose_the_form() -> None:
    """One worker or lane is the default form, more workers a pool, more lanes lanes."""
    assert type(make_form(1, "orders")) is Sequential
    assert type(make_form(2, "orders")) is Pool
    assert type(make_form(by_key(2), "orders")) is Lanes


@pytest.mark.promise("DISPATCH-1")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS)
async def test_a_form_holds_as_many_as_promised_and_no_more(workers: Any) -> None:
    """1, n or 2n + 1 deliveries are taken and unsettled at most, and so many are reached."""
    bound = 2 * workers.lanes + 1 if isinstance(workers, ByKey) else workers
    at_once = workers.lanes if isinstance(workers, ByKey) else workers
    gates, count = Gates(), 3 * bound
    async with rig(gates.handle, *_deliveries(count), workers=workers) as running:
        await idle()
        assert len(running.stream.unsettled) == bound
        assert len(gates.running) == at_once
        await gates.let_all_go(running, count)

    assert running.stream.most_unsettled == bound
    assert sorted(running.lines, key=lambda line: int(line.split()[1])) == [f"ack {n}" for n in range(1, count + 1)]


@pytest.mark.promise("DISPATCH-1")
@pytest.mark.anyio
async def test_one_key_holds_its_lane_and_the_loops_hand() -> None:
    """Deliveries of one key fill one lane, one running and one waiting, and the loop holds the next."""
    gates = Gates()
    async with rig(gates.handle, *_deliveries(9, lambda number: Key("1")), workers=by_key(3)) as running:
        await idle()
        assert (len(running.stream.unsettled), gates.running) == (3, ["1"])
        await gates.let_all_go(running, 9)

    assert gates.begun == [str(number) for number in range(1, 10)]
    assert set(gates.tasks.values()) == {"orders lane 1"}


@pytest.mark.promise("DISPATCH-2")
@pytest.mark.anyio
async def test_the_default_form_keeps_the_streams_order() -> None:
    """One delivery begins only after the one before is settled."""
    order: list[str] = []

    async def handler(body: bytes, context: Context) -> None:
        order.append(f"begin {context.id}")
        for _ in range(int(context.id) % 3):
            await anyio.lowlevel.checkpoint()

    async with rig(handler, *_deliveries(9)) as running:
        journal = running.journal.lines
        while len(journal) < 9:
            order.extend(line for line in journal if line not in order)
            await anyio.lowlevel.checkpoint()

    assert [line for line in order if line.startswith("begin")] == [f"begin {n}" for n in range(1, 10)]
    assert journal == [f"ack {number}" for number in range(1, 10)]
    assert running.stream.most_unsettled == 1


@pytest.mark.promise("DISPATCH-2")
@pytest.mark.anyio
async def test_a_key_always_goes_to_its_lane() -> None:
    """Deliveries of one key run on one lane in their order; keys of other lanes run beside them."""
    gates = Gates()
    items = _deliveries(8, lambda number: Key(str(number % 4)))
    async with rig(gates.handle, *items, workers=by_key(4)) as running:
        await idle()
        assert sorted(gates.running) == ["1", "2", "3", "4"]
        await gates.let_all_go(running, 8)

    for number in range(1, 9):
        assert gates.tasks[str(number)] == f"orders lane {number % 4}"

    for lane in range(4):
        mine = [id_ for id_ in gates.begun if int(id_) % 4 == lane]
        assert mine == sorted(mine, key=int)


@pytest.mark.promise("DISPATCH-2")
@pytest.mark.anyio
async def test_the_loop_waits_for_the_lane_of_its_delivery() -> None:
    """With a delivery for a full lane in its hand the loop takes nothing for the free ones."""
    gates = Gates()
    items = [ScriptedDelivery(str(n), key=Key("0")) for n in (1, 2, 3)] + [ScriptedDelivery("4", key=Key("1"))]
    async with rig(gates.handle, *items, workers=by_key(2)) as running:
        await idle()
        assert (gates.running, len(running.stream.items)) == (["1"], 1)
        await gates.let_go("1")
        assert sorted(gates.running) == ["2", "4"]
        await gates.let_all_go(running, 4)


@pytest.mark.promise("DISPATCH-2")
@pytest.mark.anyio
async def test_unkeyed_deliveries_go_round() -> None:
    """Without a key a delivery takes the next lane in rotation, past those that are full."""
    gates = Gates()
    async with rig(gates.handle, *_deliveries(3), workers=by_key(3)) as running:
        await idle()
        assert [gates.tasks[id_] for id_ in "123"] == [f"orders lane {index}" for index in range(3)]
        running.feed(*(ScriptedDelivery(id_, key=Key("0")) for id_ in ("a", "b")))
        await idle()
        await gates.let_go("1")  # lane 0 runs a and holds b
        running.feed(ScriptedDelivery("4"), ScriptedDelivery("5"))
        await idle()
        await gates.let_go("2", "3")
        assert (gates.tasks["4"], gates.tasks["5"]) == ("orders lane 1", "orders lane 2")
        running.feed(ScriptedDelivery("6"))
        await idle()
        await gates.let_go("4")
        assert "6" in gates.running
        assert gates.tasks["6"] == "orders lane 1"
        await gates.let_all_go(running, 8)


@pytest.mark.promise("DISPATCH-3")
@pytest.mark.anyio
async def test_one_worker_waits_and_a_suspended_one_is_replaced() -> None:
    """However many workers there are, one waits for the stream; as one suspends, another takes in its place."""
    gates = Gates()
    async with rig(gates.handle, workers=4) as running:
        await idle()
        assert running.stream.waiters == 1
        for number in (1, 2, 3):
            running.feed(ScriptedDelivery(str(number)))
            await idle()
            assert (len(gates.running), running.stream.waiters) == (number, 1)

        running.feed(ScriptedDelivery("4"))
        await idle()
        assert (len(gates.running), running.stream.waiters) == (4, 0)
        await gates.let_go("2")
        assert running.stream.waiters == 1
        await gates.let_all_go(running, 4)
        assert running.stream.waiters == 1

    assert running.stream.most_waiters == 1
    assert len(set(gates.tasks.values())) == 4
    assert set(gates.tasks.values()) == {f"orders worker {index}" for index in range(4)}


@pytest.mark.promise("DISPATCH-3")
@pytest.mark.anyio
async def test_a_burst_that_never_suspends_needs_one_worker() -> None:
    """Deliveries that never suspend are handled by the one worker that is awake."""
    tasks: set[str] = set()

    async def handler(body: bytes) -> None:
        tasks.add(anyio.get_current_task().name or "")

    async with rig(handler, *_deliveries(50), workers=8) as running:
        await running.ends(50)

    assert len(tasks) == 1


@pytest.mark.promise("DISPATCH-4")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS)
async def test_deliveries_that_never_suspend_let_other_tasks_run(workers: Any) -> None:
    """Whoever handles 64 deliveries without a suspension lets everybody else have a turn."""
    handled: list[int] = []
    seen: list[int] = []

    async def handler(body: bytes) -> None:
        handled.append(1)

    async with rig(handler, *_deliveries(640), workers=workers) as running:
        with anyio.fail_after(10):
            while len(handled) < 640:
                await anyio.lowlevel.checkpoint()
                seen.append(len(handled))

        await running.ends(640)

    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    tasks = 1 if isinstance(workers, ByKey) else workers
    assert max(steps) <= 2 * 64 * tasks  # trio may come round twice before the same task has its next turn
    assert any(step % 64 == 0 for step in steps if step) or isinstance(workers, ByKey)
    assert len([step for step in steps if step]) >= 2


@pytest.mark.promise("DISPATCH-7")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS)
async def test_a_gap_in_the_stream_is_passed_over(workers: Any) -> None:
    """What a seek leaves in the stream is no delivery."""

    async def handler(body: bytes) -> None: ...

    items: list[Item] = [GAP, ScriptedDelivery("1"), GAP, GAP, ScriptedDelivery("2")]
    async with rig(handler, *items, workers=workers) as running:
        await running.ends(2)

    assert sorted(running.lines) == ["ack 1", "ack 2"]


# Stops.


@pytest.mark.promise("DISPATCH-6")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS)
async def test_a_stop_has_everything_in_hand_handled(workers: Any) -> None:
    """After a stop nothing is taken, and what was taken - running, waiting, in the loop's hand - is settled."""
    gates = Gates()
    async with rig(gates.handle, *_deliveries(20), workers=workers) as running:
        await idle()
        taken = len(running.stream.taken)
        running.subscription.stop()
        await idle()
        assert running.lines == []
        await gates.let_all_go(running, taken)
        await running.finished()

    assert len(running.stream.taken) == taken
    assert sorted(running.lines) == sorted(f"ack {number}" for number in range(1, taken + 1))


@pytest.mark.promise("DISPATCH-6")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS)
async def test_a_cancellation_gives_everything_in_hand_back(workers: Any) -> None:
    """A cancelled form releases what it holds, each once, and settles nothing."""
    gates = Gates()
    async with rig(gates.handle, *_deliveries(20), workers=workers) as running:
        await idle()
        taken = len(running.stream.taken)
        running.subscription.cancel()
        await running.finished()

    assert sorted(running.lines) == sorted(f"release {number}" for number in range(1, taken + 1))


@pytest.mark.promise("DISPATCH-6")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS)
async def test_an_idle_form_ends_at_once(workers: Any) -> None:
    """A form that waits for the stream, its workers asleep, ends with a stop."""

    async def handler(body: bytes) -> None: ...

    async with rig(handler, workers=workers) as running:
        await idle()
        await running.stop()
        assert running.stream.waiters == 0


async def _fail(body: bytes, context: Context) -> Outcome | None:
    if context.id.startswith("bad"):
        return retry_after(5)

    if context.id.startswith("fatal"):
        raise ValueError

    return None


@pytest.mark.promise("DISPATCH-6", "RETRY-7")
@pytest.mark.anyio
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_delivery_left_unsettled_takes_the_rest_of_its_lane_along(how: str) -> None:
    """A stop while a lane retries in place gives back its inbox and what the loop holds for it; others go on."""
    items = [ScriptedDelivery(id_, key=Key(id_[-1])) for id_ in ("bad-0", "good-1", "next-0", "last-0", "never-1")]
    async with rig(_fail, *items, source=IN_PLACE, workers=by_key(2)) as running:
        await running.timer()
        await idle()
        running.subscription.stop() if how == "stop" else running.subscription.cancel()
        await running.finished()

    assert running.lines[0] == "ack good-1"
    assert sorted(running.lines[1:]) == ["release bad-0", "release last-0", "release next-0"]


@pytest.mark.promise("DISPATCH-6", "RETRY-4")
@pytest.mark.anyio
async def test_a_fail_fast_takes_the_rest_of_its_lane_along() -> None:
    """Behind a delivery that failed fast nothing of its lane is handled."""
    policy = FailurePolicy(error=FAIL_FAST)
    items = [ScriptedDelivery(id_, key=Key(id_[-1])) for id_ in ("fatal-0", "next-0", "good-1", "last-0", "never-1")]
    async with rig(_fail, *items, policy=policy, workers=by_key(2)) as running:
        await running.finished()

    assert "release fatal-0" in running.lines
    assert "release next-0" in running.lines
    assert "ack next-0" not in running.lines
    assert "ack last-0" not in running.lines
    assert sorted(line.split()[1] for line in running.lines) == sorted(item.id for item in running.stream.taken)


@pytest.mark.promise("DISPATCH-2", "RETRY-7")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", [1, by_key(2)], ids=["default", "lanes"])
async def test_a_retry_in_place_keeps_the_order(workers: Any) -> None:
    """Nothing of its lane overtakes a delivery that waits to run again."""
    order: list[str] = []

    async def handler(body: bytes, context: Context) -> Outcome | None:
        order.append(context.id)
        return retry_after(1) if context.id == "1" and context.attempt < 3 else None

    items = [ScriptedDelivery(str(number), key=Key("0"), count=1) for number in (1, 2, 3)]
    async with rig(handler, *items, source=IN_PLACE, workers=workers) as running:
        for _ in range(2):
            await running.timer()
            running.clock.advance(1)
            await eventually(lambda: running.clock.timers == 0)

        await running.ends(3)

    assert order == ["1", "1", "1", "2", "3"]


@pytest.mark.promise("DISPATCH-6")
@pytest.mark.anyio
@pytest.mark.parametrize("workers", _FORMS[1:])
async def test_an_exit_in_one_worker_gives_back_what_the_others_hold(workers: Any) -> None:
    """A BaseException in one worker or lane ends the form; every delivery in hand is released once."""

    class Exit(BaseException):
        pass

    async def handler(body: bytes, context: Context) -> None:
        if context.id == "last":
            raise Exit

        await anyio.sleep_forever()

    async with rig(handler, DelayableDelivery("1"), DelayableDelivery("last"), workers=workers) as running:
        await running.finished()
        await eventually(lambda: bool(running.loop_errors))
        (error,) = running.loop_errors
        running.loop_errors.clear()

    assert isinstance(error, BaseExceptionGroup)
    assert sorted(running.lines) == ["release 1", "release last"]
