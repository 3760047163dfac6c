"""The dispatch forms against a model, under random schedules; and the model against broken forms."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from pystream import Context, FailurePolicy, Outcome, PyStream, by_key, drop, mount, retry
from pystream._runtime.forms import Form, lanes
from pystream._runtime.forms.lanes import Lanes
from pystream._runtime.forms.pool import Pool
from pystream._runtime.forms.sequential import Sequential
from pystream._runtime.intake import Intake
from pystream._runtime.starter import Start
from pystream.failures import FAIL_FAST
from pystream.memory import MemoryBroker
from pystream.protocols import GAP, Delivery
from pystream.subscriber import ByKey

from tests.core.rig import Rig, rig
from tests.core.scripted import DelayableDelivery, Journal, ScriptedDelivery, ScriptedSource

_ROUNDS = 600  # what a schedule can need, many times over

End = Literal["ack", "drop", "retry", "raise", "fatal"]
Finale = Literal["none", "stop", "cancel", "stop, then cancel"]
Move = Literal["feed", "run", "open", "tick"]


class Key(str):
    """A key whose lane is the same in every process."""

    __slots__ = ()

    def __hash__(self) -> int:
        return ord(self)


class Fatal(Exception):
    """Stops the service."""


@dataclass(frozen=True)
class Plan:
    """One delivery: its key, its suspensions (true: until a gate opens), its end, and how often it fails before."""

    key: str | None
    steps: tuple[bool, ...]
    end: End
    failures: int


@dataclass(frozen=True)
class Schedule:
    """What happens: deliveries, moves of the world around them, and how it ends."""

    plans: tuple[Plan, ...]
    moves: tuple[Move, ...]
    in_place: bool
    finale: Finale


@dataclass
class Played:
    """What came of a schedule."""

    running: Rig
    log: list[tuple[str, int]] = field(default_factory=list)
    gates: dict[int, anyio.Event] = field(default_factory=dict)
    cancelled: bool = False

    @property
    def stream(self) -> Any:
        return self.running.stream

    @property
    def released(self) -> list[int]:
        return [int(item.id) for item in self.stream.taken if item.ends == ["release"]]


_plans = st.builds(
    Plan,
    key=st.sampled_from([None, "a", "b", "c", "d"]),
    steps=st.lists(st.booleans(), max_size=3).map(tuple),
    end=st.sampled_from(["ack", "ack", "ack", "drop", "retry", "raise", "fatal"]),
    failures=st.integers(0, 2),
)
_fewer_fatal = _plans.flatmap(
    lambda plan: st.just(plan) if plan.end != "fatal" else st.sampled_from([plan, Plan(plan.key, plan.steps, "ack", 0)])
)
schedules = st.builds(
    Schedule,
    plans=st.lists(_fewer_fatal, max_size=12).map(tuple),
    moves=st.lists(st.sampled_from(["feed", "feed", "feed", "run", "open", "tick"]), max_size=24).map(tuple),
    in_place=st.booleans(),
    finale=st.sampled_from(["none", "stop", "cancel", "stop, then cancel"]),
)


async def _rounds(count: int) -> None:
    for _ in range(count):
        await checkpoint()


async def _until(condition: Callable[[], bool], played: Played, what: str) -> None:
    """Open every gate and let time pass until the condition holds, within a number of rounds."""
    for _ in range(_ROUNDS):
        if condition():
            return

        for gate in played.gates.values():
            gate.set()

        played.running.clock.advance(100)
        await checkpoint()

    raise AssertionError(what)


def _handler(schedule: Schedule, played: Callable[[], Played]) -> Any:
    runs: dict[int, int] = {}

    async def handler(body: bytes, context: Context) -> Outcome | None:
        index, mine = int(body), played()
        plan = schedule.plans[index]
        mine.log.append(("begin", index))
        for gated in plan.steps:
            if gated:
                gate = mine.gates[index] = anyio.Event()
                await gate.wait()
            else:
                await checkpoint()

        mine.log.append(("end", index))
        runs[index] = runs.get(index, 0) + 1
        return _outcome(plan, fails=not schedule.in_place or runs[index] <= plan.failures)

    return handler


def _outcome(plan: Plan, *, fails: bool) -> Outcome | None:
    if plan.end == "fatal":
        raise Fatal

    if plan.end == "drop":
        return drop()

    if plan.end == "ack" or not fails:
        return None

    if plan.end == "raise":
        raise ValueError

    return retry()


_POLICY = FailurePolicy(error={Fatal: FAIL_FAST})


async def play(schedule: Schedule, workers: Any, form: Callable[[], Form] | None = None) -> Played:
    """Play the schedule on a form; raise AssertionError where it hangs."""
    made: list[Played] = []
    source = ScriptedSource(retry="in_place" if schedule.in_place else "broker")
    handler = _handler(schedule, lambda: made[0])
    left = [
        DelayableDelivery(str(index), str(index).encode(), key=None if plan.key is None else Key(plan.key), count=1)
        for index, plan in enumerate(schedule.plans)
    ]
    async with rig(handler, source=source, policy=_POLICY, workers=workers, form=form) as running:
        played = Played(running)
        made.append(played)
        for move in schedule.moves:
            await _move(move, played, left)

        if schedule.finale == "none":
            running.feed(*left)
            await _quiet(played, workers)
            await _until(lambda: _all_settled(played), played, "not everything was handled without a stop")

        taken = len(running.stream.taken)
        running.subscription.stop()
        if "cancel" in schedule.finale:
            await _rounds(3 if "then" in schedule.finale else 0)
            played.cancelled = running.subscription.running
            running.subscription.cancel()

        await _until(lambda: not running.subscription.running, played, "the form did not end")
        assert len(running.stream.taken) == taken, "something was taken after the stop"

    return played


async def _move(move: Move, played: Played, left: list[DelayableDelivery]) -> None:
    if move == "feed" and left:
        played.running.feed(left.pop(0))
    elif move == "run":
        await _rounds(3)
    elif move == "tick":
        played.running.clock.advance(1)
    elif move == "open":
        waiting = [gate for gate in played.gates.values() if not gate.is_set()]
        if waiting:
            waiting[0].set()


async def _quiet(played: Played, workers: Any) -> None:
    """When nothing can move, nothing waits that the form could take: it is work-conserving."""
    await _rounds(60)
    if played.stream.items and not played.running.failures:
        full = 3 if isinstance(workers, ByKey) else workers
        assert len(played.stream.unsettled) >= full, "deliveries wait while the form has room"


def _all_settled(played: Played) -> bool:
    return bool(played.running.failures) or (not played.stream.items and not played.stream.unsettled)


# The model.


def check(schedule: Schedule, played: Played, workers: Any) -> None:
    """What every form promises."""
    _check_bounds(played, workers)
    _check_ends(schedule, played)
    _check_releases(schedule, played, workers)
    groups = _ordered_groups(schedule, played, workers)
    for group in groups:
        _check_order(schedule, played, group)


def _check_bounds(played: Played, workers: Any) -> None:
    bound = 2 * workers.lanes + 1 if isinstance(workers, ByKey) else workers
    assert played.stream.most_unsettled <= bound, f"{played.stream.most_unsettled} in hand"
    assert played.stream.most_waiters <= 1, "two tasks waited for the stream"


def _check_ends(schedule: Schedule, played: Played) -> None:
    kinds = {"ack": "ack", "drop": "reject", "retry": "requeue", "raise": "retry_after", "fatal": "release"}
    for item in played.stream.taken:
        index = int(item.id)
        assert len(item.ends) == 1, f"{index} ended {item.ends}"
        (kind,) = item.ends
        if kind == "release":
            continue

        plan = schedule.plans[index]
        expected = "ack" if schedule.in_place and plan.end in ("retry", "raise") else kinds[plan.end]
        assert kind == expected, f"{index} ended as {kind}, not as {expected}"
        runs = 1 + plan.failures if schedule.in_place and plan.end in ("retry", "raise") else 1
        assert played.log.count(("end", index)) == runs, f"{index} was settled unhandled, or handled too often"


def _check_releases(schedule: Schedule, played: Played, workers: Any) -> None:
    if played.cancelled:
        return

    waits_in_place = {
        index
        for index, plan in enumerate(schedule.plans)
        if schedule.in_place and plan.failures and plan.end in ("retry", "raise")
    }
    for index in played.released:
        behind = isinstance(workers, ByKey) and any(other < index for other in played.released)
        assert behind or index in waits_in_place or schedule.plans[index].end == "fatal", f"{index} was given back"


def _ordered_groups(schedule: Schedule, played: Played, workers: Any) -> Sequence[set[int]]:
    indexes = {int(item.id) for item in played.stream.taken}
    if workers == 1:
        return [indexes]

    if not isinstance(workers, ByKey):
        return []

    keys = {plan.key for plan in schedule.plans if plan.key is not None}
    return [{index for index in indexes if schedule.plans[index].key == key} for key in keys]


def _check_order(schedule: Schedule, played: Played, group: set[int]) -> None:
    mine = [entry for entry in played.log if entry[1] in group]
    begun = [index for what, index in mine if what == "begin"]
    assert begun == sorted(begun), f"order broken: {begun}"
    open_: int | None = None
    for what, index in mine:
        assert (open_ is None) if what == "begin" else (open_ == index), f"{index} overlaps {open_}"
        open_ = index if what == "begin" else None

    gone = [index for index in played.released if index in group]
    if gone:
        assert not [index for index in begun if index > min(gone)], "something overtook what was given back"


# The forms.


_FORMS = [
    pytest.param(1, id="default"),
    pytest.param(2, id="workers=2"),
    pytest.param(3, id="workers=3"),
    pytest.param(by_key(2), id="by_key(2)"),
    pytest.param(by_key(3), id="by_key(3)"),
]


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    logger = logging.getLogger("pystream")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def _run(backend: Any, function: Callable[..., Any], *args: Any) -> Any:
    name, options = backend
    return anyio.run(function, *args, backend=name, backend_options=options)


@pytest.mark.promise("DISPATCH-1", "DISPATCH-2", "DISPATCH-3", "DISPATCH-5", "DISPATCH-6", "SETTLE-1")
@pytest.mark.parametrize("workers", _FORMS)
def test_a_form_keeps_its_promises_under_any_schedule(anyio_backend: Any, workers: Any) -> None:
    """Bounds, order, liveness and the drain law hold for random arrivals, keys, durations, failures and stops."""

    @settings(max_examples=200 if anyio_backend[0] == "asyncio" and not anyio_backend[1]["use_uvloop"] else 40)
    @given(schedules)
    def holds(schedule: Schedule) -> None:
        check(schedule, _run(anyio_backend, play, schedule, workers), workers)

    holds()


async def _stop_and_go_on(keys: list[str | None], stop_at: int, suspensions: list[int], workers: Any) -> list[int]:
    """Stop a service on the memory broker once so many are handled, start it again; what was handled, in order."""
    handled: list[int] = []
    progress = Journal()

    async def handler(body: bytes) -> None:
        index = int(body)
        for _ in range(suspensions[index]):
            await checkpoint()

        handled.append(index)
        progress.add(str(index))

    broker = MemoryBroker()
    app = PyStream("shop").with_broker(broker, mount(handler, "orders", workers=workers))
    async with app.start() as running:
        out = running.publisher()
        for index, key in enumerate(keys):
            await out.publish(str(index).encode(), "orders", key=key and Key(key))

        await progress.until(lambda: len(handled) >= stop_at)

    async with app.start():
        await progress.until(lambda: len(handled) >= len(keys))

    assert broker.stored("orders") == 0
    return handled


@pytest.mark.promise("DISPATCH-5", "DISPATCH-6")
@pytest.mark.parametrize("workers", _FORMS)
def test_a_stop_at_any_moment_loses_and_repeats_nothing(anyio_backend: Any, workers: Any) -> None:
    """Over the memory broker, a stop and a new start handle every message exactly once, in the promised order."""

    @settings(max_examples=12)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=20))
        stop_at = data.draw(st.integers(0, len(keys)))
        suspensions = data.draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys)))
        handled = _run(anyio_backend, _stop_and_go_on, keys, stop_at, suspensions, workers)

        assert sorted(handled) == list(range(len(keys)))
        if workers == 1:
            assert handled == sorted(handled)
        elif isinstance(workers, ByKey):
            for key in "abc":
                mine = [index for index in handled if keys[index] == key]
                assert mine == sorted(mine)

    holds()


# The model rejects forms that break their promises.


class ForgetsTheSleepers(Pool):
    def _wake_one(self) -> None:
        pass


class TakesWithoutAWorker(Sequential):
    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        async with anyio.create_task_group() as tasks:
            while intake.open:
                delivery = intake.take()
                if delivery is None or delivery is GAP:
                    await intake.wait()
                    continue

                rest = start(delivery)
                if rest is not None:
                    tasks.start_soon(_finish, rest)


async def _finish(rest: Any) -> None:
    await rest


class DropsWhatItHolds(Sequential):
    """Looks whether it was stopped between the take and the start."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        while True:
            delivery = intake.take()
            if not intake.open:
                return

            if delivery is None or delivery is GAP:
                await intake.wait()
                continue

            rest = start(delivery)
            if rest is not None:
                await rest


class DropsTheDeliveryInItsHand(Lanes):
    """Lets a stop end the wait for a lane, and forgets what the wait was for."""

    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        self._intake = intake
        await super().run(intake, start)

    async def _wait_for(self, lane: Any, delivery: Delivery) -> None:
        await super()._wait_for(lane, delivery)
        if not self._intake.open:
            lane.broken = True
            delivery.release = lambda: None  # type: ignore[method-assign]  # the fault


class IgnoresTheKey(Lanes):
    async def run(self, intake: Intake, start: Start[Delivery]) -> None:
        take = intake.take

        def blind() -> Any:
            delivery = take()
            if isinstance(delivery, ScriptedDelivery):
                delivery.lane_key = None

            return delivery

        intake.take = blind
        await super().run(intake, start)


class OvertakesWhatIsLeft(Lanes):
    def gave_up(self, delivery: Delivery) -> None:
        pass


class NeverGetsRoom(Lanes):
    async def _wait_for(self, lane: Any, delivery: Delivery) -> None:
        await anyio.sleep_forever()


class KeepsTheInbox(lanes._Lane):
    __slots__ = ()

    def give_back(self) -> None:
        self.deliveries.clear()


def _as_it_is() -> AbstractContextManager[object]:
    return nullcontext()


_MUTANTS = {
    "pool that does not wake a sleeper": (3, lambda: ForgetsTheSleepers(3, "orders"), _as_it_is),
    "pool without its last worker": (3, lambda: Pool(2, "orders"), _as_it_is),
    "pool with a worker too many": (2, lambda: Pool(3, "orders"), _as_it_is),
    "default form that does not wait for the end": (1, TakesWithoutAWorker, _as_it_is),
    "default form that drops what it holds": (1, DropsWhatItHolds, _as_it_is),
    "lanes that drop what the loop holds": (by_key(2), lambda: DropsTheDeliveryInItsHand(2, "orders"), _as_it_is),
    "lanes that ignore the key": (by_key(2), lambda: IgnoresTheKey(2, "orders"), _as_it_is),
    "lanes that let others overtake": (by_key(2), lambda: OvertakesWhatIsLeft(2, "orders"), _as_it_is),
    "lanes that never get room": (by_key(2), lambda: NeverGetsRoom(2, "orders"), _as_it_is),
    "lanes with three places": (
        by_key(2),
        lambda: Lanes(2, "orders"),
        lambda: mock.patch.object(lanes, "_ROOM", 3),
    ),
    "lanes with one place": (by_key(2), lambda: Lanes(2, "orders"), lambda: mock.patch.object(lanes, "_ROOM", 1)),
    "lanes that do not give back their inbox": (
        by_key(2),
        lambda: Lanes(2, "orders"),
        lambda: mock.patch.object(lanes, "_Lane", KeepsTheInbox),
    ),
}


@pytest.mark.parametrize("mutant", _MUTANTS)
def test_the_model_rejects(mutant: str) -> None:
    """A form that breaks a promise is found out by some schedule."""
    workers, form, fault = _MUTANTS[mutant]

    def breaks(schedule: Schedule) -> bool:
        try:
            with fault():
                played = _run(("asyncio", {}), play, schedule, workers, form)

            check(schedule, played, workers)
        except AssertionError:
            return True

        return False

    try:
        find(schedules, breaks, settings=settings(max_examples=2000, database=None, phases=[*_SEARCH]))
    except NoSuchExample:
        pytest.fail("the model accepts it")


_SEARCH = tuple(phase for phase in settings().phases if phase.name == "generate")
