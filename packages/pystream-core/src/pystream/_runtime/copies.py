"""Messages that a service publishes in a delivery's place: copies for another attempt, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping

from pystream._runtime.live import LiveMount
from pystream.context import RETRY_COUNT_HEADER
from pystream.errors import DecodeError
from pystream.headers import (
    DEAD_LETTER_ATTEMPTS,
    DEAD_LETTER_DESTINATION,
    DEAD_LETTER_MESSAGE_ID,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIPTION,
    find_header,
)
from pystream.protocols import Delivery, Outgoing


class Copies:
    """Publishes what stands for deliveries of one mount, through its publish layers.

    Args:
        live: The mount.
    """

    __slots__ = ("_dead_letter", "_publisher", "_retry_to", "_subscription")

    def __init__(self, live: LiveMount) -> None:
        registered = live.registered
        self._publisher = live.publisher
        self._subscription = registered.name
        self._retry_to = registered.retry_to or registered.source.copies_to
        self._dead_letter = registered.mounting.dead_letter or ""  # nothing is buried where none is declared

    async def retry(self, delivery: Delivery, attempt: int) -> None:
        """Publish a copy for the attempt after `attempt`; returns after the receipt.

        Raises:
            DecodeError: The headers, which it keeps, cannot be read.
            PublishError: The broker refused or did not confirm it.

        Cancel safety: a cancelled publish may or may not have been sent.
        """
        headers = _with(delivery.headers, {RETRY_COUNT_HEADER: str(attempt).encode()})
        await self._send(delivery, self._retry_to or delivery.destination, headers)

    async def bury(self, delivery: Delivery, reason: str, attempt: int) -> None:
        """Publish a dead letter; returns after the receipt.

        Raises:
            PublishError: The broker refused or did not confirm it.

        Cancel safety: a cancelled publish may or may not have been sent.
        """
        try:
            headers: Mapping[str, bytes] = delivery.headers
        except DecodeError:
            headers = {}  # which may be why it is a dead letter

        origin = {
            DEAD_LETTER_SUBSCRIPTION: _text(self._subscription),
            DEAD_LETTER_DESTINATION: _text(delivery.destination),
            DEAD_LETTER_MESSAGE_ID: _text(delivery.id),
        }
        # What became a dead letter before, and was sent on its way again, keeps its first origin.
        added = {name: value for name, value in origin.items() if find_header(headers, name) is None}
        added[DEAD_LETTER_REASON] = _text(reason)
        added[DEAD_LETTER_ATTEMPTS] = str(attempt).encode()
        await self._send(delivery, self._dead_letter, _with(headers, added))

    async def _send(self, delivery: Delivery, destination: str, headers: Mapping[str, bytes]) -> None:
        await self._publisher.publish(Outgoing(destination, delivery.payload, headers, delivery.key))


def _with(headers: Mapping[str, bytes], added: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The headers as they were sent, but for those of the same names, whatever their case."""
    return {**{name: value for name, value in headers.items() if name.lower() not in added}, **added}


def _text(value: str) -> bytes:
    return value.encode(errors="backslashreplace")
