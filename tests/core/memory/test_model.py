"""The broker against a plain model, over random schedules of everything that can be done with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pystream.memory import ConnectedMemoryBroker, MemoryBroker, MemoryDelivery, MemorySubscriber
from pystream.protocols import Mounting

from tests.core.memory.support import at_once, outgoing
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.anyio

_HANDLERS = (("orders", "one"), ("orders", "two"), ("payments", "one"))
_SETTLEMENTS = ("ack", "reject", "requeue", "retry_after", "release")

Step: TypeAlias = "tuple[str, int, int]"

_DOINGS = ("publish", "take", "advance", "close", "open", "restart", *_SETTLEMENTS)
_WEIGHTED = [*_DOINGS, "publish", "publish", "take", "take", "take", "requeue", "retry_after"]
_steps = st.lists(
    st.tuples(st.sampled_from(_WEIGHTED), st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 29)),
    min_size=10,
    max_size=120,
)


@dataclass
class _Model:
    """What one subscription owes: each offset is in one of `unseen`, `hand`, `due`, `held`, `gone` or done."""

    start: int
    unseen: list[int] = field(default_factory=list)
    hand: dict[int, MemoryDelivery] = field(default_factory=dict)
    due: list[int] = field(default_factory=list)
    held: list[tuple[float, int]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    last: str = ""

    def pending(self) -> set[int]:
        return {*self.unseen, *self.hand, *self.due, *(offset for _, offset in self.held), *self.gone}

    def take(self, delivery: MemoryDelivery | None) -> None:
        if delivery is None:
            assert not self.unseen
            assert not self.due
            return

        offset = delivery.offset
        if offset in self.unseen:
            assert not (self.last == "unseen" and self.due), "a redelivery missed its turn"
            assert self.unseen.pop(0) == offset
            self.last = "unseen" if self.due else ""
        else:
            assert not (self.last == "due" and self.unseen), "an unseen message missed its turn"
            assert self.due.pop(0) == offset
            self.last = "due" if self.unseen else ""

        assert delivery.delivery_count == self.counts.get(offset, 1)
        self.hand[offset] = delivery

    def advance(self, now: float) -> None:
        self.due += [offset for due, offset in self.held if due <= now]
        self.held = [(due, offset) for due, offset in self.held if due > now]

    def close(self) -> None:
        self.unseen = sorted(self.pending())
        self.hand, self.due, self.held, self.gone, self.last = {}, [], [], set(), ""


class _Run:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker()
        self.connection: ConnectedMemoryBroker = at_once(self.broker.connect(self.clock))
        self.open: dict[int, MemorySubscriber] = {}
        self.models: dict[int, _Model] = {}
        self.ends = {"orders": 0, "payments": 0}

    async def step(self, what: str, which: int, number: int) -> None:
        if what == "publish":
            self.publish(_HANDLERS[which][0])
        elif what == "advance":
            self.clock.advance(number / 8)
            for model in self.models.values():
                model.advance(self.clock.now())
        elif what == "restart":
            await self.restart()
        elif what == "open":
            self.subscribe(which)
        elif which in self.open:
            await self.act(what, which, number)

    async def act(self, what: str, which: int, number: int) -> None:
        model = self.models[which]
        if what == "take":
            model.take(self.open[which].take())
        elif what == "close":
            await self.close(which)
        elif model.hand:
            offset = sorted(model.hand)[number % len(model.hand)]
            self.settle(model, offset, what, number / 4)

    def publish(self, name: str) -> None:
        at_once(self.connection.publisher().publish(outgoing(b"%d" % self.ends[name], to=name)))
        models = [model for which, model in self.models.items() if _HANDLERS[which][0] == name]
        for model in models:
            model.unseen.append(self.ends[name])

        if models:
            self.ends[name] += 1

    def settle(self, model: _Model, offset: int, settlement: str, delay: float) -> None:
        delivery = model.hand.pop(offset)
        assert delivery.payload == b"%d" % offset
        if settlement == "release":
            delivery.release()
            model.gone.add(offset)
            return

        if settlement in {"ack", "reject"}:
            at_once(delivery.ack() if settlement == "ack" else delivery.reject())
            model.acknowledged.append(offset)
            return

        model.counts[offset] = model.counts.get(offset, 1) + 1
        if settlement == "requeue":
            at_once(delivery.requeue())
            model.due.append(offset)
        else:
            at_once(delivery.retry_after(delay))
            model.held = sorted([*model.held, (self.clock.now() + delay, offset)], key=lambda entry: entry[0])

    def subscribe(self, which: int) -> None:
        if which not in self.open:
            name, handler = _HANDLERS[which]
            source = self.broker.default_source(name)
            self.open[which] = at_once(self.connection.subscribe(source, Mounting(name=handler)))
            self.models.setdefault(which, _Model(self.ends[name]))

    async def close(self, which: int) -> None:
        # Cancelled at once: what is in hand is given back without spending the bound.
        with anyio.move_on_after(0):
            await self.open.pop(which).close()

        self.models[which].close()

    async def restart(self) -> None:
        for which in tuple(self.open):
            await self.close(which)

        await self.connection.close()
        self.connection = at_once(self.broker.connect(self.clock))

    def check(self) -> None:
        for which, subscriber in self.open.items():
            assert subscriber.delayed == len(self.models[which].held)

        for name, end in self.ends.items():
            needed = [
                min(model.pending(), default=end) for which, model in self.models.items() if _HANDLERS[which][0] == name
            ]
            assert self.broker.stored(name) == end - min(needed, default=end)

    async def finish(self) -> None:
        """Start once more and acknowledge what there is: every message, once."""
        await self.restart()
        for which, model in self.models.items():
            self.subscribe(which)
            while (delivery := self.open[which].take()) is not None:
                model.take(delivery)
                self.settle(model, delivery.offset, "ack", 0)

            assert self.open[which]._counts == {}
            assert sorted(model.acknowledged) == list(range(model.start, self.ends[_HANDLERS[which][0]]))

        self.check()
        await self.restart()
        assert self.clock.timers == 0


# The one function-scoped fixture names the event loop; every example makes a broker of its own.
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_steps)
@pytest.mark.promise("MEMORY-1", "MEMORY-3", "MEMORY-4", "MEMORY-5", "MEMORY-6", "MEMORY-7")
async def test_every_message_is_acknowledged_once_or_still_owed(steps: list[Step]) -> None:
    """On any schedule nothing is lost or early, counts and turns are right, and the log holds what is owed."""
    run = _Run()
    for which in (0, 2):
        run.subscribe(which)

    for step in steps:
        await run.step(*step)
        run.check()

    await run.finish()
