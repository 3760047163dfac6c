"""Batches under random schedules: nothing is lost, handled twice without need, or stuck.

`Server` models what was seen of a real server and its client: a negative acknowledgement
brings the whole entry back, its count raised; each copy of an entry is consumed only by
acknowledging all messages of that very copy; a reconnect delivers what is not consumed
again; a sibling may get an entry that was asked back, and ask it back itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pystream_pulsar import PulsarMessage

from tests.pulsar.scripted import Raw, ScriptedConsumer, Stream, batch, open_stream

Name = tuple[int, int]
"""Entry and index: which message, whatever copy."""


class Server:
    def __init__(self, consumer: ScriptedConsumer) -> None:
        self.consumer = consumer
        self.sizes: dict[int, int] = {}
        self.counts: Counter[int] = Counter()
        self.asked: set[int] = set()
        self.copies: dict[int, tuple[int, set[int]]] = {}
        self.elsewhere: set[int] = set()
        consumer.on_nack = lambda raw: self.asked.add(raw.entry)

    def publish(self, size: int) -> None:
        entry = len(self.sizes) + 1
        self.sizes[entry] = size
        self.deliver(entry)

    def deliver(self, entry: int) -> None:
        size = self.sizes[entry]
        self.consumer.feed(*batch(*range(size), entry=entry, size=size, count=self.counts[entry]))

    def unconsumed(self) -> list[int]:
        """The entries of which no copy was acknowledged whole."""
        whole: dict[tuple[int, int], set[int]] = {}
        for raw in self.consumer.acked:
            whole.setdefault((raw.entry, raw.copy), set()).add(raw.index)

        consumed = {entry for (entry, _), seen in whole.items() if len(seen) == self.sizes[entry]}
        return [entry for entry in self.sizes if entry not in consumed]

    def redeliver(self) -> None:
        """Serve the requests that the client has made."""
        for entry in sorted(self.asked & set(self.unconsumed()) - self.elsewhere):
            self.counts[entry] += 1
            self.deliver(entry)

        self.asked.clear()

    def reconnect(self) -> None:
        """What the client has read ahead is dropped, and everything unconsumed comes again."""
        self.consumer.waiting.clear()
        self.asked.clear()
        for entry in self.unconsumed():
            if entry not in self.elsewhere:
                self.deliver(entry)

    def lend(self) -> None:
        """A sibling gets what was asked back, and asks it back in its turn."""
        self.elsewhere |= self.asked & set(self.unconsumed())
        self.asked.clear()

    def take_back(self) -> None:
        for entry in sorted(self.elsewhere):
            self.counts[entry] += 2
            self.deliver(entry)

        self.elsewhere.clear()


@dataclass
class Handler:
    """What the handlers have in hand and have done."""

    stream: Stream
    in_hand: dict[Name, PulsarMessage] = field(default_factory=dict)
    done: set[Name] = field(default_factory=set)
    disturbed: bool = False

    def take(self) -> None:
        message = self.stream.driver.take()
        if message is None:
            return

        name = (message.identity.entry, message.identity.batch_index)
        assert name not in self.in_hand, f"{name} is handled twice at once"
        assert self.disturbed or name not in self.done, f"{name} is handled again"
        assert 1 <= message.delivery_count <= self.most(name)
        self.in_hand[name] = message

    def most(self, name: Name) -> int:
        return 1000 if self.disturbed else self.failures[name] + 1

    failures: Counter[Name] = field(default_factory=Counter)

    async def ack(self, at: int) -> None:
        name, message = self.pick(at)
        if message is not None:
            await message.ack()
            self.done.add(name)

    async def retry(self, at: int, delay: float) -> None:
        name, message = self.pick(at)
        if message is not None:
            await message.retry_after(delay)
            self.failures[name] += 1

    def pick(self, at: int) -> tuple[Name, PulsarMessage | None]:
        if not self.in_hand:
            return (0, 0), None

        name = sorted(self.in_hand)[at % len(self.in_hand)]
        return name, self.in_hand.pop(name)


def number_copies(server: Server) -> None:
    """Give each delivery of an entry a number, which its messages carry."""
    feed = server.consumer.feed
    deliveries = Counter[int]()

    def numbered(*raws: Raw) -> None:
        deliveries[raws[0].entry] += 1
        for raw in raws:
            raw.copy = deliveries[raw.entry]

        feed(*raws)

    server.consumer.feed = numbered  # type: ignore[method-assign]  # a wrapper around the scripted one


numbers = st.integers(0, 1000)
calm = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([1, 2, 3, 5, 30])),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("ack"), numbers),
    st.tuples(st.just("ack"), numbers),
    st.tuples(st.just("retry"), numbers),
    st.tuples(st.just("delay"), numbers),
    st.tuples(st.just("advance"), st.sampled_from([0.01, 0.1, 1.0])),
    st.tuples(st.just("redeliver"), st.just(0)),
)
stormy = st.one_of(
    calm,
    calm,
    st.tuples(st.just("advance"), st.sampled_from([6.0, 70.0])),
    st.tuples(st.just("reconnect"), st.just(0)),
    st.tuples(st.just("lend"), st.just(0)),
    st.tuples(st.just("take_back"), st.just(0)),
)


async def play(steps: list[tuple[str, float]], *, disturbed: bool) -> None:
    """Take these steps, then let everything come to rest, and look at what has become of the messages."""
    stream = await open_stream()
    server = Server(stream.consumer)
    number_copies(server)
    handler = Handler(stream, disturbed=disturbed)
    for step, value in steps:
        if step == "publish":
            server.publish(int(value))
        elif step == "ack":
            await handler.ack(int(value))
        elif step == "retry":
            await handler.retry(int(value), 0.0)
        elif step == "delay":
            await handler.retry(int(value), value / 100)
        elif step == "advance":
            stream.clock.advance(value)
        elif step == "take":
            for _ in range(3):
                handler.take()

        else:
            getattr(server, step)()

    await settle_all(stream, server, handler)


async def settle_all(stream: Stream, server: Server, handler: Handler) -> None:
    """From here on every handler succeeds and the server serves every request."""
    server.take_back()
    if handler.disturbed:  # a request that went to a closed connection is made up for by the next reconnect
        server.reconnect()

    for _ in range(60):
        before = None
        while before != len(handler.in_hand):
            before = len(handler.in_hand)
            handler.take()

        while handler.in_hand:
            await handler.ack(0)

        if not server.unconsumed():
            break

        stream.clock.advance(1)
        server.redeliver()

    everything = {(entry, index) for entry, size in server.sizes.items() for index in range(size)}
    assert handler.done == everything, f"acknowledged unhandled: {everything - handler.done}"
    assert server.unconsumed() == [], "stuck"
    while (message := stream.driver.take()) is not None:  # late copies of what was asked back twice
        assert handler.disturbed, f"{message.id} is handled again"

    stream.clock.advance(200)
    assert stream.clock.armed == 0
    assert stream.driver._session.fast_thread


@pytest.mark.promise("PULSAR-23", "PULSAR-24", "PULSAR-25")
@settings(max_examples=150, deadline=None)
@given(st.lists(calm, min_size=10, max_size=80))
def test_undisturbed(steps: list[tuple[str, float]]) -> None:
    """Each message is settled once and its count is its own, whatever is acknowledged, retried or delayed when."""
    anyio.run(lambda: play(steps, disturbed=False))


@pytest.mark.promise("PULSAR-22", "PULSAR-24")
@settings(max_examples=150, deadline=None)
@given(st.lists(stormy, min_size=10, max_size=80))
def test_with_reconnects_and_siblings(steps: list[tuple[str, float]]) -> None:
    """With reconnects, siblings and long silences nothing is acknowledged unhandled, and nothing is stuck."""
    anyio.run(lambda: play(steps, disturbed=True))
