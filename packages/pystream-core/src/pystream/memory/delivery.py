"""`MemoryDelivery`: one message of the memory broker in the hands of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING

from pystream.errors import SettlementRejected
from pystream.memory._store import Message
from pystream.protocols import Key, RetryKind

if TYPE_CHECKING:
    from pystream.memory.subscriber import MemorySubscriber

__all__ = ["MemoryDelivery"]


class MemoryDelivery:
    """One message handed out, with the capability `pystream.protocols.RetryAfter`.

    Settlements never suspend. From another thread than the owner's they are accepted at
    once and made by the owner the next time it looks at the stream; what was accepted is
    made even if the subscriber closes meanwhile.

    Attributes:
        offset: The place in the log of its destination, from 0.
        payload: The body as it was published.
        delivery_count: How often it was handed out on this subscription, from 1. A requeue
            and a delayed retry raise it; being given back unsettled does not.
    """

    __slots__ = ("_message", "_stream", "delivery_count", "offset", "payload")

    # Filled by `MemorySubscriber.take`: a Python `__init__` is a fifth of what a take costs.
    _message: Message
    _stream: MemorySubscriber
    offset: int
    payload: bytes
    delivery_count: int

    def __repr__(self) -> str:
        return f"<MemoryDelivery {self.id}, count {self.delivery_count}>"

    @property
    def id(self) -> str:
        """The destination and the offset, as `orders:17`."""
        return f"{self._message.destination}:{self.offset}"

    @property
    def destination(self) -> str:
        """The name it was published to."""
        return self._message.destination

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers as they were published; read-only."""
        return self._message.headers

    @property
    def key(self) -> Key | None:
        """The message key; none and the empty key are both none."""
        return self._message.key

    @property
    def lane_key(self) -> Key | None:
        """The key: this broker orders by nothing else."""
        return self._message.key

    @property
    def decode_error(self) -> Exception | None:
        """None: nothing is encoded here."""
        return None

    @property
    def retry(self) -> RetryKind | None:
        """None: the kind of the source holds for every delivery."""
        return None

    async def ack(self) -> None:
        """Settle as done.

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        stream = self._stream
        if get_ident() == stream.thread:
            stream.claim_done(self)
        else:
            stream.leave(self, stream.acknowledge)

    async def reject(self) -> None:
        """Settle as refused: for this broker the same as done, nothing is kept of the message.

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        await self.ack()

    async def requeue(self) -> None:
        """Settle as to be handed out again at once, its count raised.

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self._settle(self._stream.requeue)

    async def retry_after(self, delay: float) -> None:
        """Settle as to be handed out again no sooner than `delay` seconds from now, its count raised.

        The delay goes by the clock of the connection. When it is asked for on another
        thread, it begins once the owner has seen it.

        Args:
            delay: Seconds, a finite number of 0 or more.

        Raises:
            SettlementRejected: The delay is no such number; nothing was settled.
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        if not 0 <= delay < inf:
            raise SettlementRejected(
                f"{self.id}: a delay of {delay!r} s cannot be kept; give a finite one of 0 or more"
            )

        stream = self._stream
        self._settle(lambda offset: stream.hold(offset, delay))

    def release(self) -> None:
        """Say that it will not be settled: the subscription has it again when the subscriber closes.

        Synchronous, idempotent, from any thread; without effect on a settled delivery.
        """
        self._stream.release(self)

    def _settle(self, settlement: Callable[[int], object]) -> None:
        stream = self._stream
        if get_ident() == stream.thread:
            stream.claim(self)
            settlement(self.offset)
        else:
            stream.leave(self, settlement)
