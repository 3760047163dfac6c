"""What the harness tells, kept: the calls, the publishes, and the counts that say when a reaction is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import get_ident
from time import monotonic
from typing import Any

from pystream import Outcome
from pystream.harness import Instrument, Probe
from pystream.protocols import Delivery, Outgoing
from pystream.signal import Signal

from pystream_testing._ledger import Ledger
from pystream_testing.records import BatchCall, Call, Published

__all__ = ["Recorder", "Recording", "TestOutgoing"]

_LOOK_EVERY = 0x3FF  # deliveries; so a reaction whose handlers overlap without end is noticed, too


class TestOutgoing(Outgoing):
    """A message that the test itself publishes."""

    __slots__ = ()
    __test__ = False  # nothing for pytest to collect


class Recording(Probe):
    """One subscription.

    Attributes:
        name: The subscription's.
        calls: All calls, oldest first.
        waits: Whether the form waits for the stream.
        running: How many deliveries and batches are worked on, those asleep on the clock not counted.
    """

    def __init__(self, name: str, recorder: Recorder, group: Hashable) -> None:
        self.name = name
        self._group = group
        self.calls: list[Call] = []
        self.waits = False
        self.running = 0
        self._recorder = recorder
        self._present: dict[int, Call] = {}
        self._held: dict[int, Call] = {}
        self._batches: dict[int, BatchCall] = {}
        self._untold: dict[int, list[Call]] = {}  # for each delivery the same, of its whole batch

    def waiting(self, waits: bool) -> None:
        self.waits = waits
        if waits:
            self._recorder.look()

    def taken(self, delivery: Delivery) -> None:
        recorder = self._recorder
        recorder.taken += 1
        recorder.progress += 1
        if recorder.requeued:
            recorder.requeued.pop((self._group, delivery.id), None)

        if not recorder.taken & _LOOK_EVERY:
            recorder.look()

    def began(self, delivery: Delivery) -> None:
        self.running += 1
        recorder = self._recorder
        recorder.running += 1
        recorder.begun += 1
        recorder.progress += 1
        self._present[id(delivery)] = call = Call(self.name, delivery)
        self.calls.append(call)

    def called(self, delivery: Delivery, value: Any) -> None:
        call = self._present[id(delivery)]
        if call.over:  # again, in place
            self._tell(call)
            self._present[id(delivery)] = call = Call(self.name, delivery)
            self.calls.append(call)

        call.value = value

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        self._present[id(delivery)].error = error
        if id(delivery) in self._batches:
            self._batches[id(delivery)].error = error

    def handled(self, delivery: Delivery, outcome: Outcome | None) -> None:
        self._present[id(delivery)].decide(outcome)

    def paused(self, pauses: bool) -> None:
        change = -1 if pauses else 1
        self.running += change
        self._recorder.running += change
        self._recorder.look()

    def settling(self, delivery: Delivery, outcome: Outcome, again: float | None) -> None:
        call = self._present[id(delivery)]
        call.decide(outcome)
        call.settlement_error = None  # of what the broker does not have, and this is done instead
        if again is None:
            return

        recorder = self._recorder
        recorder.requeued[self._group, delivery.id] = recorder.now() + again
        if recorder.ledger is not None:
            recorder.ledger.owe_again(self.name, delivery.payload, again or None)

    def settled(self, delivery: Delivery, outcome: Outcome, error: Exception | None) -> None:
        if error is None:
            return

        self._present[id(delivery)].settlement_error = error
        if id(delivery) in self._batches:
            self._batches[id(delivery)].settlement_error = error

        self._recorder.requeued.pop((self._group, delivery.id), None)

    def ended(self, delivery: Delivery) -> None:
        self.running -= 1
        recorder = self._recorder
        recorder.running -= 1
        if recorder.ledger is not None:
            recorder.ledger.handled(self.name, delivery.payload)

        call = self._present.pop(id(delivery))
        if recorder.on_call:
            self._tell(call)

        recorder.look()

    def batch_began(self, deliveries: Sequence[Delivery]) -> None:
        self.running += 1
        recorder = self._recorder
        recorder.running += 1
        recorder.begun += len(deliveries)
        recorder.progress += 1
        calls: list[Call] = []
        for delivery in deliveries:
            self._present[id(delivery)] = Call(self.name, delivery)
            self._untold[id(delivery)] = calls

    def refused(self, delivery: Delivery, error: Exception | None) -> None:
        call = self._part(delivery)
        call.error = error
        self._add(delivery, call)

    def batch_called(self, deliveries: Sequence[Delivery], values: Sequence[Any]) -> None:
        parts = [self._part(delivery) for delivery in deliveries]
        for part, value in zip(parts, values, strict=True):
            part.value = value

        call = BatchCall(self.name, parts)
        self._add(deliveries[0], call)
        for delivery in deliveries:
            self._batches[id(delivery)] = call

    def batch_ended(self, deliveries: Sequence[Delivery]) -> None:
        self.running -= 1
        recorder = self._recorder
        recorder.running -= 1
        untold = self._untold[id(deliveries[0])]
        for delivery in deliveries:
            del self._present[id(delivery)], self._untold[id(delivery)]
            self._batches.pop(id(delivery), None)
            if recorder.ledger is not None:
                recorder.ledger.handled(self.name, delivery.payload)

        for call in untold:
            self._tell(call)

        recorder.look()

    def _part(self, delivery: Delivery) -> Call:
        """The record of a delivery in its batch; a new one where it is run again in place."""
        part = self._present[id(delivery)]
        if part.over:
            part = self._present[id(delivery)] = Call(self.name, delivery)

        return part

    def _add(self, delivery: Delivery, call: Call) -> None:
        self.calls.append(call)
        self._untold[id(delivery)].append(call)

    def held(self, delivery: Delivery, outcome: Outcome) -> None:
        call = self._held[id(delivery)] = self._present[id(delivery)]
        call.decide(outcome)
        call.settlement_error = None

    def resumed(self, delivery: Delivery) -> None:
        self.running += 1
        self._recorder.running += 1
        self._present[id(delivery)] = self._held.pop(id(delivery))
        self._recorder.look()

    def left(self, delivery: Delivery) -> None:
        self.running -= 1
        self._recorder.running -= 1
        del self._present[id(delivery)]
        self._recorder.look()

    def _tell(self, call: Call) -> None:
        for callback in self._recorder.on_call:
            self._recorder.run(callback, call)


class Recorder(Instrument):
    """One run of an app.

    Args:
        now: The time that delays go by, in seconds.
        groups: By the name of a subscription: what is the same for all that share its messages.
        ledger: What is owed by a server, in a live run.

    Attributes:
        recordings: The subscriptions by name.
        published_messages: What was published and confirmed, oldest first.
        on_call: Called with each call after its settlement.
        on_publish: Called with each message after its confirmation.
        flaws: What these have raised.
        running: How many deliveries are worked on, over all subscriptions.
        publishes: As many entries as publishes have begun and not ended.
        tasks: The names of the continuations and hooks that run as tasks.
        taken: How many deliveries were taken so far.
        begun: How many of them were begun to be worked on; the others wait in a lane, or were given back.
        requeued: What was given back and not handed out again, and from when on it may be.
        progress: Changes with everything that happens.
        stopped: Whether a stop was announced.
        ledger: What is owed by a server, in a live run.
    """

    def __init__(
        self,
        now: Callable[[], float] = monotonic,
        *,
        groups: Mapping[str, Hashable] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.now = now
        self._groups = groups or {}
        self.recordings: dict[str, Recording] = {}
        self.published_messages: list[Published] = []
        self.on_call: list[Callable[[Call], object]] = []
        self.on_publish: list[Callable[[Published], object]] = []
        self.flaws: list[BaseException] = []
        self.running = 0
        self.publishes: deque[Outgoing] = deque()  # changed from any thread, so by atomic calls alone
        self.tasks: list[str] = []
        self.taken = 0
        self.begun = 0
        self.requeued: dict[tuple[Hashable, str], float] = {}
        self.progress: int = 0
        self.stopped: bool = False
        self.ledger = ledger
        self._waiters: list[Signal] = []
        self._thread = get_ident()

    def subscription(self, name: str) -> Probe:
        self.recordings[name] = recording = Recording(name, self, self._groups.get(name, name))
        return recording

    def publishing(self, broker: int, outgoing: Outgoing) -> None:
        self.publishes.append(outgoing)
        if self.ledger is not None:
            self.ledger.owe(broker, outgoing)

    def published(self, broker: int, outgoing: Outgoing, error: BaseException | None) -> None:
        self.publishes.pop()  # whose it was does not matter: they are counted
        if error is not None:
            if self.ledger is not None:
                self.ledger.forgive(broker, outgoing)
        else:
            message = Published(outgoing, broker=broker, by_test=type(outgoing) is TestOutgoing)
            self.published_messages.append(message)
            for callback in self.on_publish:
                self.run(callback, message)

        self.look()

    def tracked(self, name: str, runs: bool) -> None:
        if runs:
            self.tasks.append(name)
        else:
            self.tasks.remove(name)
            self.look()

    def stopping(self) -> None:
        self.stopped = True
        self.look()

    def run(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Call something of the test's, and keep what it raises."""
        try:
            callback(argument)
        except BaseException as error:  # the test's own; raised where the test waits
            self.flaws.append(error)

    def look(self) -> None:
        """Something has happened: whoever waits looks again."""
        self.progress += 1
        if not self._waiters:
            return

        here = get_ident() == self._thread
        for waiter in self._waiters:
            waiter.wake() if here else waiter.wake_from_thread()

    async def change(self) -> None:
        """Return when something has happened. Cancel safety: cancelling it changes nothing."""
        waiter = Signal()
        self._waiters.append(waiter)
        try:
            await waiter.wait()
        finally:
            self._waiters.remove(waiter)
