"""`InProcessConsumer`: the client's half of a subscription: what it reads ahead, and its settlements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from pystream.protocols import Clock
from pystream_pulsar import PulsarSubscriptionEnded
from pystream_pulsar.transport import ConsumerSpec, RawMessage

from pystream_testing.pulsar._in_process import refusals
from pystream_testing.pulsar._in_process.entries import Copy, InProcessMessage
from pystream_testing.pulsar._in_process.nacks import Nacks

if TYPE_CHECKING:
    from pystream_testing.pulsar._in_process.passing import PassingSubscription
    from pystream_testing.pulsar._in_process.subscription import Subscription

__all__ = ["InProcessConsumer"]

AnySubscription: TypeAlias = "Subscription | PassingSubscription"


class InProcessConsumer:
    """Implements `pystream_pulsar.transport.TransportConsumer`.

    The subscription delivers while `permits` lasts. Permits go back as the client returns
    them: when half the queue was taken. A batch is delivered whole, so they may fall below 0.

    Args:
        spec: What it was opened with.
        subscription: Delivers, and takes the settlements.
        clock: Keeps the delay of a redelivery.
        wake: Told of messages and of the end.
        number: Tells the cluster's consumers apart, in the order of their opening.
        closed: Called once, when `close` begins.

    Attributes:
        permits: How many messages the subscription may still deliver.
    """

    __slots__ = (
        "_armed",
        "_closed",
        "_copies",
        "_failure",
        "_nacks",
        "_queue",
        "_returned",
        "_subscription",
        "_wake",
        "number",
        "permits",
        "spec",
    )

    def __init__(
        self,
        spec: ConsumerSpec,
        subscription: AnySubscription,
        clock: Clock,
        wake: Callable[[], None],
        *,
        number: int,
        closed: Callable[[InProcessConsumer], object],
    ) -> None:
        self.spec = spec
        self.number = number
        self.permits = spec.receiver_queue_size
        self._subscription = subscription
        self._wake = wake
        self._closed = closed
        self._nacks = Nacks(clock, self._ask_back)
        self._queue: deque[InProcessMessage] = deque()
        self._copies: dict[int, Copy] = {}
        self._returned = 0
        self._armed = False
        self._failure: PulsarSubscriptionEnded | None = None

    @property
    def failure(self) -> PulsarSubscriptionEnded | None:
        return self._failure

    @property
    def waiting(self) -> int:
        """How many messages the next pulls could bring."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """How many messages it holds, read ahead or handed out, that are neither settled nor to come again."""
        if not self._subscription.persistent:
            return len(self._queue)  # what was handed out is as good as settled: nothing brings it back

        return sum(len(copy.unsettled) for number, copy in self._copies.items() if number not in self._nacks)

    @property
    def held(self) -> int:
        """How many messages are in entries that wait for their redelivery request."""
        return sum(len(copy.entry.messages) for number, copy in self._copies.items() if number in self._nacks)

    def pull(self, room: int) -> Sequence[InProcessMessage]:
        messages: list[InProcessMessage] = []
        while len(messages) < room and self._queue:
            messages.append(self._queue.popleft())
            self._give_permit()

        if len(messages) < room:
            self._arm()

        return messages

    def deliver(self, copy: Copy) -> None:
        """Take one entry from the subscription."""
        messages = copy.messages()
        self.permits -= len(messages)
        self._queue.extend(messages)
        if self._subscription.persistent:
            self._copies[copy.entry.number] = copy

        if self._armed:
            self._armed = False
            self._wake()

    def ack(self, raw: RawMessage) -> None:
        message = cast("InProcessMessage", raw)
        if self._failure is not None:
            # A live client counts such acknowledgements on a non-persistent topic as made.
            if self._subscription.persistent:
                raise refusals.not_settled(self.spec)

            return

        copy = message.copy
        copy.unsettled.discard(message.index)
        if not copy.unsettled:
            self._copies.pop(copy.entry.number, None)  # done with it, also with a later copy
            self._subscription.acknowledge(copy.entry.number)

    def nack(self, raw: RawMessage) -> None:
        """Ask for the message's entry again, 100 ms from now; of no effect where Pulsar does nothing."""
        if self._failure is None and self._subscription.persistent:
            self._nacks.add(cast("InProcessMessage", raw).copy.entry.number)

    def begin_close(self, *, unsubscribe: bool = False) -> None:
        """Close at once. Idempotent."""
        if self._failure is not None:
            return

        self._failure = refusals.ended(self.spec)
        self._closed(self)
        self._nacks.clear()
        self._queue.clear()
        self._copies.clear()
        self._subscription.detach(self, unsubscribe=unsubscribe)
        if self._armed:
            self._armed = False
            self._wake()

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Close the consumer; with `unsubscribe`, delete the subscription if no other consumer has it.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self.begin_close(unsubscribe=unsubscribe)

    def _arm(self) -> None:
        if self._failure is not None:
            self._wake()
        else:
            self._armed = True

    def _give_permit(self) -> None:
        self._returned += 1
        if self._returned >= max(1, self.spec.receiver_queue_size // 2):
            self.permits += self._returned
            self._returned = 0
            self._subscription.dispatch()

    def _ask_back(self, entries: list[int]) -> None:
        for number in entries:
            self._copies.pop(number, None)

        self._subscription.redeliver(self, entries)
