"""`RedisDelivery`: one entry of a stream in the hands of the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from pystream.errors import DecodeError, SettlementRejected
from pystream.protocols import RetryKind

from pystream_redis._fields import KEY, PAYLOAD, headers_in, value_of

if TYPE_CHECKING:
    from pystream_redis.subscriber import RedisSubscriber

__all__ = ["RedisDelivery"]


class RedisDelivery:
    """One entry handed out, with the capability `pystream.protocols.RetryAfter`.

    A settlement that returns was accepted: its command waits in the connection's outgoing
    pipeline. The server learns of it soon after, at the subscriber's close at the latest.
    One that cannot be made in the end is logged and counted, and the entry comes back.

    Attributes:
        entry_id: The id of the entry in its stream.
        destination: The stream's key.
        delivery_count: How often the group has handed it out, this time included, from 1.
    """

    def __init__(self, subscriber: RedisSubscriber, entry: bytes, fields: Sequence[bytes], count: int) -> None:
        self.entry = entry
        self.fields = fields
        self.delivery_count: int = count
        self.done = False
        self._subscriber = subscriber

    def __repr__(self) -> str:
        return f"<RedisDelivery {self.id}, count {self.delivery_count}>"

    @property
    def entry_id(self) -> str:
        """The id of the entry in its stream."""
        return self.entry.decode()

    @property
    def id(self) -> str:
        """The stream and the entry's id, as `orders:1526919030474-55`."""
        return f"{self.destination}:{self.entry_id}"

    @property
    def destination(self) -> str:
        """The stream's key."""
        return self._subscriber.source.stream

    @property
    def payload(self) -> bytes:
        """The field `payload`, empty where the entry has none."""
        return value_of(self.fields, PAYLOAD) or b""

    @cached_property
    def headers(self) -> Mapping[str, bytes]:
        """The fields `header:NAME`.

        Raises:
            DecodeError: A name is no UTF-8.
        """
        return headers_in(self.fields)

    @property
    def key(self) -> bytes | None:
        """The field `key`; none and the empty key are both none."""
        return value_of(self.fields, KEY) or None

    @property
    def lane_key(self) -> bytes | None:
        """The key: a stream orders by nothing else."""
        return self.key

    @property
    def decode_error(self) -> Exception | None:
        """An entry that another program has added without a field `payload` is no message."""
        if value_of(self.fields, PAYLOAD) is not None:
            return None

        return DecodeError(f"{self.id} has no field 'payload'; it was not added by pystream-redis")

    @property
    def retry(self) -> RetryKind | None:
        """None: the kind of the source holds for every delivery."""
        return None

    async def ack(self) -> None:
        """Settle as done (XACK); the entry itself stays in the stream.

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self._subscriber.acknowledge(self)

    async def reject(self) -> None:
        """Settle as refused: for Redis the same as done, and nothing is kept of the refusal.

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self._subscriber.acknowledge(self)

    async def requeue(self) -> None:
        """Settle as to be handed out again at once, by the same subscriber, its count raised (XCLAIM).

        Raises:
            SettlementError: It was settled or released before.
            BrokerClosed: It was given back when its subscriber closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self._subscriber.requeue(self)

    async def retry_after(self, delay: float) -> None:
        """Settle as to be handed out again, by the same subscriber, no sooner than `delay` seconds from now.

        The subscriber holds the entry; the server goes on counting it as pending. If the
        process dies meanwhile, another consumer gets it after the source's `claim_after`.

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

        self._subscriber.hold(self, delay)

    def release(self) -> None:
        """Say that it will not be settled: the group has it again when the subscriber closes.

        Synchronous, idempotent, from any thread; without effect on a settled delivery.
        """
        self._subscriber.release(self)
