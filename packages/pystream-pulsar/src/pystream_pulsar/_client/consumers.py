"""`ClientConsumer`: one open consumer of the client behind the transport protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from pystream_pulsar._client.binding import NativeError
from pystream_pulsar._client.closing import Call, call_all
from pystream_pulsar._client.drain import ArmedDrain
from pystream_pulsar._client.messages import ClientMessage, received
from pystream_pulsar._client.results import ended_error, settlement_error
from pystream_pulsar.errors import PulsarSubscriptionEnded
from pystream_pulsar.transport import ConsumerSpec

__all__ = ["ClientConsumer"]


class ClientConsumer:
    """Implements `pystream_pulsar.transport.TransportConsumer`.

    Settlements are the client's synchronous calls: each is an insertion into a list that the
    client sends every 100 ms, a twentieth of the price of the call with a callback.

    Args:
        native: The binding's consumer.
        spec: What it was opened with.
        wake: Told of messages and of the end.
        close_timeout: Seconds that `close` may take.
        closed: Called once, when `close` begins.
    """

    def __init__(
        self,
        native: Any,
        spec: ConsumerSpec,
        wake: Callable[[], None],
        *,
        close_timeout: float,
        closed: Callable[[ClientConsumer], None],
    ) -> None:
        self._native = native
        self._spec = spec
        self._drain = ArmedDrain(native, wake)
        self._acknowledge = native.acknowledge
        self._negative_acknowledge = native.negative_acknowledge
        self._close_timeout = close_timeout
        self._closed: Callable[[ClientConsumer], None] | None = closed

    def pull(self, room: int) -> list[ClientMessage]:
        """Up to `room` (1 or more) messages without waiting; fewer means that `wake` follows."""
        return received(self._drain.pull(room))

    @property
    def failure(self) -> PulsarSubscriptionEnded | None:
        """Why nothing comes any more, or none while something may."""
        ended = self._drain.ended
        return None if ended is None else ended_error(self._spec, ended)

    def ack(self, raw: Any) -> None:
        """Acknowledge one message, which is one of this consumer's.

        Raises:
            PulsarSettlementError: The consumer is closed.
        """
        acknowledge = self._acknowledge  # not called as a method, which it is not: that takes a slow look-up
        try:
            acknowledge(raw.native)
        except NativeError as error:
            raise settlement_error("an acknowledgement", self._spec, error) from error

    def nack(self, raw: Any) -> None:
        """Ask for the entry of one of this consumer's messages again, 100 ms from the last such request.

        Raises:
            PulsarSettlementError: The consumer is closed.
        """
        try:
            self._negative_acknowledge(raw.native)
        except NativeError as error:
            raise settlement_error("a negative acknowledgement", self._spec, error) from error

    def begin_close(self) -> Call | None:
        """The call that closes it, once; none when closing has begun already."""
        closed, self._closed = self._closed, None
        if closed is None:
            return None

        closed(self)
        close: Call = self._native.close_async
        return close

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Close the consumer within the bound; with `unsubscribe`, delete the subscription first.

        Cancel safety: the cancellation waits for the close.
        """
        close = self.begin_close()
        if close is None:
            return

        deadline = anyio.current_time() + self._close_timeout
        if unsubscribe:
            await call_all([self._native.unsubscribe_async], deadline=deadline)

        await call_all([close], deadline=deadline)
