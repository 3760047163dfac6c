"""`threads=n` and `threads=by_key(n)`: how many deliveries they hold, in which order, on which threads."""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import anyio
import pytest
from pystream import Context, Outcome, ack, by_key, mount
from pystream._loops import current_loop
from pystream._runtime.forms import make_threads
from pystream._runtime.forms.threads import Threads
from pystream.protocols import GAP
from pystream.subscriber import ByKey

from tests.core.rig import idle, rig
from tests.core.scripted import Item, ScriptedDelivery
from tests.core.test_registration import _registered, confirm
from tests.core.threading_support import Gates, Key, deliveries, form_of, lone, opened, still, taken, until

pytestmark = pytest.mark.anyio

_FORMS = [
    pytest.param(1, id="threads=1"),
    pytest.param(3, id="threads=3"),
    pytest.param(by_key(2), id="by_key(2)"),
    pytest.param(by_key(3), id="by_key(3)"),
]


def _size(threads: int | ByKey) -> int:
    return threads.lanes if isinstance(threads, ByKey) else threads


def _bound(threads: int | ByKey) -> int:
    return threads.lanes * 9 + 1 if isinstance(threads, ByKey) else threads * 9


@pytest.mark.promise("DISPATCH-70")
@pytest.mark.parametrize("threads", _FORMS)
async def test_as_many_are_held_as_promised_and_no_more(threads: Any) -> None:
    """At most 9n deliveries are taken and unsettled, 9n + 1 with keys, and so many are reached."""
    bound, size = _bound(threads), _size(threads)
    gates, count = Gates(), bound + 12
    items = deliveries(count, lambda number: Key(str(number % size)))
    async with rig(gates.handle, *items[:size], threads=threads) as running:
        await until(lambda: len(gates.running) == size)
        running.feed(*items[size:])
        await until(lambda: len(running.stream.unsettled) == bound)
        await still(form_of(running))
        assert (len(running.stream.taken), len(gates.running)) == (bound, size)
        await gates.let_all_go(running, count)

    assert running.stream.most_unsettled == bound
    assert sorted(running.lines, key=lambda line: int(line.split()[1])) == [f"ack {n}" for n in range(1, count + 1)]


@pytest.mark.promise("DISPATCH-70")
async def test_one_key_holds_its_thread_and_the_feeders_hand() -> None:
    """Deliveries of one key fill one thread, nine, and the feeder holds the next; it takes none for idle threads."""
    gates = Gates()
    items = [*deliveries(11, lambda number: Key("1")), ScriptedDelivery("other", key=Key("0"))]
    async with rig(gates.handle, items[0], threads=by_key(3)) as running:
        await until(lambda: len(gates.running) == 1)
        running.feed(*items[1:])
        await until(lambda: len(running.stream.unsettled) == 10)
        await still(form_of(running))
        assert (len(running.stream.taken), gates.running) == (10, ["1"])
        await gates.let_go("1")
        await until(lambda: len(running.stream.taken) == 11)
        await gates.let_all_go(running, 12)

    assert [id_ for id_ in gates.begun if id_ != "other"] == [str(number) for number in range(1, 12)]
    assert {name for id_, name in gates.threads.items() if id_ != "other"} == {"orders thread 1"}
    assert gates.threads["other"] == "orders thread 0"


@pytest.mark.promise("DISPATCH-71")
@pytest.mark.parametrize("size", [2, 3])
async def test_deliveries_go_round(size: int) -> None:
    """Without keys the threads get the deliveries in turn, one each."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(8 * size), threads=size) as running:
        await gates.let_all_go(running, 8 * size)

    assert gates.threads == {str(n): f"orders thread {(n - 1) % size}" for n in range(1, 8 * size + 1)}


@pytest.mark.promise("DISPATCH-71")
async def test_full_rings_are_skipped() -> None:
    """While the rings of the others are full, everything goes to the thread that has room."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(3), threads=3) as running:
        await until(lambda: len(gates.running) == 3)
        running.feed(*deliveries(37, first=4))
        await until(lambda: len(running.stream.unsettled) == 27)
        mine = next(id_ for id_ in gates.running if gates.threads[id_] == "orders thread 1")
        for _ in range(4):
            await gates.let_go(mine)
            await gates.gone(mine)
            await until(lambda: len(gates.running) == 3)
            mine = next(id_ for id_ in gates.running if gates.threads[id_] == "orders thread 1")

        await until(lambda: len(running.stream.taken) == 31)
        await still(form_of(running))
        assert len(running.stream.taken) == 31
        await gates.let_all_go(running, 40)

    assert {gates.threads[str(number)] for number in range(28, 32)} == {"orders thread 1"}


@pytest.mark.promise("DISPATCH-71")
async def test_a_ring_is_picked_before_anything_is_taken() -> None:
    """While every ring is full nothing is taken from the stream, so that nothing is in the feeder's hand."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(2), threads=2) as running:
        await until(lambda: len(gates.running) == 2)
        running.feed(*deliveries(28, first=3))
        await until(lambda: len(running.stream.taken) == 18)
        await still(form_of(running))
        held = len(gates.running) + sum(len(ring._slots) for ring in form_of(running)._rings)
        assert (len(running.stream.taken), held, running.stream.waiters) == (18, 18, 0)
        await gates.let_all_go(running, 30)


@pytest.mark.promise("DISPATCH-72")
async def test_a_key_always_goes_to_its_thread() -> None:
    """Deliveries of one key run on one thread in their order; keys of other threads run beside them."""
    gates = Gates()
    items = deliveries(24, lambda number: Key(str(number % 4)))
    async with rig(gates.handle, *items, threads=by_key(4)) as running:
        await until(lambda: len(gates.running) == 4)
        assert sorted(gates.running) == ["1", "2", "3", "4"]
        await gates.let_all_go(running, 24)

    assert gates.threads == {str(number): f"orders thread {number % 4}" for number in range(1, 25)}
    for lane in range(4):
        mine = [int(id_) for id_ in gates.begun if int(id_) % 4 == lane]
        assert mine == sorted(mine)


@pytest.mark.promise("DISPATCH-72")
async def test_unkeyed_deliveries_go_round_past_full_rings() -> None:
    """Without a key a delivery of `by_key` takes the next ring with room in rotation, else waits for the next."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(3), threads=by_key(3)) as running:
        await until(lambda: len(gates.running) == 3)
        assert [gates.threads[id_] for id_ in "123"] == [f"orders thread {index}" for index in range(3)]
        running.feed(*deliveries(8, lambda number: Key("0"), first=10))  # fills the ring of thread 0
        running.feed(*deliveries(3, first=20))
        await until(lambda: len(running.stream.taken) == 14)
        running.feed(*deliveries(14, first=30))
        await until(lambda: len(running.stream.taken) == 28)  # 27, and one in the feeder's hand
        await gates.let_all_go(running, 28)

    assert [gates.threads[str(number)] for number in (20, 21, 22)] == [f"orders thread {index}" for index in (1, 2, 1)]


@pytest.mark.promise("DISPATCH-73")
async def test_threads_have_names_and_loops_of_their_own() -> None:
    """Each thread is named after the subscription and its index, and runs a loop of the app's own kind."""
    seen: dict[str, tuple[str, type, bool]] = {}

    def kind() -> type:
        asyncio = sys.modules.get("asyncio")
        loop = asyncio._get_running_loop() if asyncio is not None else None
        return type(loop)

    async def handler(body: bytes) -> None:
        thread = threading.current_thread()
        seen[thread.name] = current_loop().library, kind(), thread.daemon

    async with rig(handler, *deliveries(12), threads=3) as running:
        await running.ends(12)

    assert seen == {f"orders thread {index}": (current_loop().library, kind(), True) for index in range(3)}
    await until(lambda: not any(thread.name.startswith("orders thread") for thread in threading.enumerate()))


@pytest.mark.promise("DISPATCH-74")
async def test_a_stopped_feeder_goes_on_when_a_ring_is_half_empty() -> None:
    """With every ring full nothing is taken until one has drained to four; then four are."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(1), threads=1) as running:
        await until(lambda: gates.running == ["1"])
        running.feed(*deliveries(29, first=2))
        await until(lambda: len(running.stream.taken) == 9)
        for number in (1, 2, 3):
            await gates.let_go(str(number))
            await gates.alone(str(number + 1))
            await still(form_of(running))
            assert len(running.stream.taken) == 9, number

        await gates.let_go("4")
        await until(lambda: len(running.stream.taken) == 13)
        await still(form_of(running))
        assert len(running.stream.taken) == 13
        await gates.let_all_go(running, 30)


@pytest.mark.promise("DISPATCH-74")
async def test_a_feeder_that_waits_for_one_ring_goes_on_at_its_first_slot() -> None:
    """With a delivery for a full ring in its hand the feeder goes on as soon as that ring has a slot."""
    gates = Gates()
    async with rig(gates.handle, *deliveries(20, lambda number: Key("0")), threads=by_key(2)) as running:
        await until(lambda: len(running.stream.taken) == 10)
        for number in (1, 2):
            await gates.let_go(str(number))
            await taken(running, 10 + number)
            await still(form_of(running))
            assert len(running.stream.taken) == 10 + number

        await gates.let_all_go(running, 20)


@pytest.mark.promise("DISPATCH-75")
async def test_the_feeder_passes_a_checkpoint_after_64_deliveries() -> None:
    """A feeder with room for more lets others have a turn after 64 deliveries without a suspension."""
    seen = [0]

    def make(made: Any) -> Threads:
        form = make_threads(10, "orders", lambda side: lambda delivery: None, 1)
        assert isinstance(form, Threads)
        return form

    async with lone(make, lambda delivery: None, *deliveries(80)) as running:
        with anyio.fail_after(10):
            while len(running.stream.taken) < 80:
                await anyio.lowlevel.checkpoint()
                seen.append(len(running.stream.taken))

        form = running.form
        assert isinstance(form, Threads)
        await until(lambda: not any(ring._slots for ring in form._rings))

    steps = [after - before for before, after in pairwise(seen) if after > before]
    assert steps in ([64, 16], [80])  # trio may come round twice before the same task has its next turn
    assert steps == [64, 16] or current_loop().library == "trio"


@pytest.mark.promise("DISPATCH-76")
@pytest.mark.parametrize("threads", _FORMS)
async def test_a_gap_in_the_stream_is_passed_over(threads: Any) -> None:
    """What a seek leaves in the stream is no delivery."""

    async def handler(body: bytes) -> None: ...

    items: list[Item] = [GAP, ScriptedDelivery("1"), GAP, GAP, ScriptedDelivery("2")]
    async with rig(handler, *items, threads=threads) as running:
        await running.ends(2)

    assert sorted(running.lines) == ["ack 1", "ack 2"]


_request: ContextVar[str] = ContextVar("request", default="none")


@pytest.mark.promise("DISPATCH-78")
async def test_each_delivery_has_a_copy_of_the_apps_context_variables() -> None:
    """A handler on a thread sees the app's context variables; what it sets is seen by what follows, and by no other."""
    _request.set("of the app")
    seen: list[tuple[str, str]] = []

    async def after() -> None:
        seen.append(("after", _request.get()))

    async def handler(body: bytes, context: Context) -> Outcome:
        seen.append(("handler", _request.get()))
        _request.set(context.id)
        await anyio.lowlevel.checkpoint()
        assert _request.get() == context.id
        return ack().and_after(after)

    async with rig(handler, *deliveries(20), threads=2) as running:
        await running.ends(20)
        await running.stop()

    assert [value for kind, value in seen if kind == "handler"] == ["of the app"] * 20
    assert sorted(int(value) for kind, value in seen if kind == "after") == list(range(1, 21))
    assert _request.get() == "of the app"


@pytest.mark.promise("DISPATCH-79")
async def test_everything_of_a_delivery_happens_on_its_thread() -> None:
    """Handler, settlement, continuations and hooks of a delivery run on one thread, with places of its own."""
    threads: dict[str, set[str]] = {}

    def note(id_: str) -> None:
        threads.setdefault(id_, set()).add(threading.current_thread().name)

    class Telling(ScriptedDelivery):
        async def ack(self) -> None:
            note(self.id)
            await super().ack()

    async def after(id_: str) -> None:
        await anyio.lowlevel.checkpoint()
        note(id_)

    async def settled(event: Any) -> None:
        note(event.id if hasattr(event, "id") else "hook")

    async def handler(body: bytes, context: Context) -> Outcome:
        note(context.id)
        context.after_settle(note, context.id)
        return ack().and_after(after, context.id)

    async with rig(handler, *(Telling(str(n)) for n in range(8)), threads=2, hooks=(settled,)) as running:
        await running.ends(8)
        await running.stop()

    assert [threads[str(n)] for n in range(8)] == [{f"orders thread {n % 2}"} for n in range(8)]
    assert threads["hook"] == {"orders thread 0", "orders thread 1"}


@pytest.mark.promise("DISPATCH-79")
async def test_the_bound_of_tracked_tasks_is_each_threads_own() -> None:
    """A thread whose places are taken waits for one, and the other threads do not."""
    going = anyio.Event()
    home = current_loop()
    released = threading.Event()
    handled: list[str] = []

    async def after(id_: str) -> None:
        await opened(released)

    async def handler(body: bytes, context: Context) -> Outcome | None:
        handled.append(context.id)
        if int(context.id) % 2:
            return ack().and_after(after, context.id)

        if context.id == "10":
            home.post(going.set)

        return None

    async with rig(handler, *deliveries(10), threads=2, max_tracked=1) as running:
        with anyio.fail_after(10):
            await going.wait()

        await until(lambda: "3" in handled)
        await still(form_of(running))
        assert sorted(handled, key=int) == ["1", "2", "3", "4", "6", "8", "10"]
        assert "ack 3" not in running.lines
        assert len(running.subscription.tracked) == 1
        released.set()
        await running.ends(10)


@pytest.mark.promise("DISPATCH-77")
@pytest.mark.parametrize("threads", _FORMS)
async def test_a_trickle_is_handled_without_a_stop(threads: Any) -> None:
    """Deliveries that come one at a time, with the threads asleep in between, are each handled at once."""

    async def handler(body: bytes) -> None: ...

    async with rig(handler, threads=threads) as running:
        for number in range(1, 30):
            running.feed(ScriptedDelivery(str(number), key=Key(str(number))))
            await running.ends(number)
            if number % 3 == 0:
                await still(form_of(running), 1)
                await idle()


@pytest.mark.promise("DISPATCH-70")
def test_by_key_of_one_is_one_thread() -> None:
    """`threads=1` is one dedicated thread, and so is `by_key(1)`: nine deliveries."""
    for threads, expected, concurrency in (
        (1, 1, 9),
        (by_key(1), 1, 9),
        (4, 4, 36),
        (by_key(4), by_key(4), 37),
    ):
        (registered,) = _registered(mount(confirm, "orders", threads=threads))
        assert (registered.threads, registered.mounting.concurrency) == (expected, concurrency)
