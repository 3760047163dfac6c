"""Caps and dead letters as a service sees them: over odd brokers, and in place on every form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pystream import Context, Outcome, PyStream, by_key, dead_letter, harness, mount, retry, retry_after
from pystream.headers import DEAD_LETTER_ATTEMPTS, DEAD_LETTER_REASON
from pystream.memory import MemoryBroker
from pystream_testing.conformance.brokers import HONEST

from tests.core.rig import Rig, eventually, idle, rig
from tests.core.scripted import ScriptedDelivery, ScriptedSource
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.anyio

IN_PLACE = ScriptedSource(retry="in_place")
ODD = [row for row in HONEST if row.name in ("no-counts", "no-delay", "no-requeue", "no-settlement")]
BROKERS: list[Any] = [pytest.param(MemoryBroker, id="memory")]
BROKERS += [pytest.param(row.broker, id=row.name) for row in ODD]


def _again() -> Outcome:
    return retry()


def _later() -> Outcome:
    return retry_after(5)


def _raise() -> Outcome:
    raise ValueError("broken")


def _in_turn() -> Callable[[], Outcome]:
    ways = iter([_later, _again, _raise, _later, _again, _raise])

    def decide() -> Outcome:
        return next(ways)()

    return decide


WAYS = [
    pytest.param(lambda: _again, id="retry"),
    pytest.param(lambda: _later, id="retry_after"),
    pytest.param(lambda: _raise, id="raise"),
    pytest.param(_in_turn, id="in turn"),
]


@pytest.mark.promise("RETRY-22", "RETRY-23", "RETRY-26")
@pytest.mark.parametrize("make", BROKERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cap", [1, 2, 4])
async def test_every_broker_keeps_the_cap(
    make: Callable[[], Any], way: Callable[[], Callable[[], Outcome]], cap: int
) -> None:
    """The handler sees a message as often as the cap says, whatever the broker can; then it is a dead letter, once."""
    attempts: list[int] = []
    dead: list[Context] = []
    decide = way()

    async def handler(body: bytes, context: Context) -> Outcome:
        assert (body, context.headers["trace"]) == (b"body", b"t")
        attempts.append(context.attempt)
        return decide()

    async def bury(body: bytes, context: Context) -> None:
        assert body == b"body"
        dead.append(context)

    clock = ManualClock()
    mounts = [mount(handler, "orders", max_attempts=cap, dead_letter="dead"), mount(bury, "dead")]
    app = PyStream("shop").with_broker(make(), *mounts)
    async with harness.start(app, clock=lambda: clock) as harnessed:
        await harnessed.running.publisher().publish(b"body", "orders", headers={"trace": b"t"})
        with anyio.fail_after(10):
            while not dead:
                clock.advance(20)
                await idle()

        clock.advance(100)
        await idle()

    assert attempts == list(range(1, cap + 1))
    (context,) = dead
    assert context.headers["trace"] == b"t"
    assert context.headers[DEAD_LETTER_ATTEMPTS] == b"%d" % cap
    assert context.headers[DEAD_LETTER_REASON] == b"given up at attempt %d (max_attempts=%d)" % (cap, cap)


@pytest.mark.promise("RETRY-20", "RETRY-24")
@pytest.mark.parametrize("make", BROKERS)
@pytest.mark.parametrize("way", WAYS)
async def test_every_broker_retries_without_a_cap(
    make: Callable[[], Any], way: Callable[[], Callable[[], Outcome]]
) -> None:
    """Without a cap a message is handled again and again until it is acknowledged, and then no more."""
    seen: list[bytes] = []
    decide = way()

    async def handler(body: bytes) -> Outcome | None:
        seen.append(body)
        return decide() if len(seen) < 5 else None

    clock = ManualClock()
    app = PyStream("shop").with_broker(make(), mount(handler, "orders"))
    async with harness.start(app, clock=lambda: clock) as harnessed:
        await harnessed.running.publisher().publish(b"body", "orders")
        with anyio.fail_after(10):
            while len(seen) < 5:
                clock.advance(20)
                await idle()

        clock.advance(100)
        await idle()

    assert seen == [b"body"] * 5


# In place, on every form.

FORMS = [
    pytest.param({}, id="default"),
    pytest.param({"workers": 2}, id="workers=2"),
    pytest.param({"workers": by_key(2)}, id="by_key(2)"),
    pytest.param({"threads": 1}, id="threads=1"),
    pytest.param({"threads": 2}, id="threads=2"),
    pytest.param({"threads": by_key(2)}, id="threads=by_key(2)"),
]


async def _run(running: Rig, ends: int) -> None:
    """Let time pass, on the clock of the app's loop and on those of threads, until so many deliveries have ended."""
    with anyio.fail_after(10):
        while running.stream.ends < ends:
            running.clock.advance(0.1)
            await anyio.sleep(0.001)


@pytest.mark.promise("RETRY-21", "RETRY-22", "RETRY-23")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dead", [None, "dead"])
async def test_in_place_every_form_keeps_the_cap(form: dict[str, Any], dead: str | None) -> None:
    """Each delivery is run as often as the cap says, by the task that has it, and then given up."""
    seen: dict[str, list[int]] = defaultdict(list)

    async def handler(body: bytes, context: Context) -> Outcome:
        seen[context.id].append(context.attempt)
        return retry()

    items = [ScriptedDelivery(str(number), key=str(number % 2)) for number in range(4)]
    async with rig(handler, *items, source=IN_PLACE, max_attempts=3, dead_letter=dead, **form) as running:
        await _run(running, 4)

    assert dict(seen) == {str(number): [1, 2, 3] for number in range(4)}
    assert {tuple(item.ends) for item in items} == {("ack",) if dead else ("reject",)}
    assert [sent.destination for sent in running.broker.sent] == (["dead"] * 4 if dead else [])


@pytest.mark.promise("RETRY-21", "RETRY-22")
async def test_in_place_the_brokers_count_and_the_runs_add_up() -> None:
    """The count that a delivery arrives with, and the runs in place, count together against the cap."""
    attempts: list[int] = []

    async def handler(body: bytes, context: Context) -> Outcome:
        attempts.append(context.attempt)
        return retry()

    async with rig(handler, ScriptedDelivery("1", count=3), source=IN_PLACE, max_attempts=5) as running:
        await _run(running, 1)

    assert (attempts, running.lines) == ([3, 4, 5], ["reject 1"])


@pytest.mark.promise("RETRY-21", "RETRY-31")
async def test_in_place_a_dead_letter_ends_the_runs() -> None:
    """A later run may decide for the dead letters; hooks and order are as for any other outcome."""
    runs: list[int] = []

    async def handler(body: bytes, context: Context) -> Outcome | None:
        runs.append(context.attempt)
        return retry() if context.attempt == 1 else dead_letter("second time")

    async with rig(handler, ScriptedDelivery("1"), source=IN_PLACE, dead_letter="dead") as running:
        await _run(running, 1)

    assert (runs, running.lines) == ([1, 2], ["publish dead {}", "ack 1"])


@pytest.mark.promise("RETRY-21")
@pytest.mark.parametrize("form", [{}, {"workers": by_key(2)}, {"threads": 1}, {"threads": by_key(2)}], ids=str)
async def test_in_place_the_ordered_forms_keep_the_order(form: dict[str, Any]) -> None:
    """What waits for its next run is run before anything behind it of its lane."""
    runs: list[str] = []

    async def handler(body: bytes, context: Context) -> Outcome | None:
        runs.append(context.id)
        return retry() if context.attempt < 3 else None

    items = [ScriptedDelivery(str(number), key="one") for number in range(3)]
    async with rig(handler, *items, source=IN_PLACE, **form) as running:
        await _run(running, 3)

    assert runs == ["0", "0", "0", "1", "1", "1", "2", "2", "2"]


@pytest.mark.promise("RETRY-21", "STOP-4")
@pytest.mark.parametrize("form", FORMS)
async def test_a_stop_during_the_wait_in_place_gives_it_back(form: dict[str, Any]) -> None:
    """On every form a stop leaves what waits for its next run unsettled, given back once."""
    waiting: list[str] = []

    async def handler(body: bytes, context: Context) -> Outcome:
        waiting.append(context.id)
        return retry_after(3600)

    async with rig(handler, ScriptedDelivery("0", key="one"), source=IN_PLACE, max_attempts=9, **form) as running:
        await eventually(lambda: bool(waiting))
        await idle()

    assert running.lines == ["release 0"]
