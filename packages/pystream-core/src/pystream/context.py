"""What a handler may see of its delivery besides the payload: `Context` and `State`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from pystream.headers import Headers, find_header

if TYPE_CHECKING:
    from pystream.protocols import Delivery, Key

__all__ = ["RETRY_COUNT_HEADER", "Context", "State", "attempt_of"]

RETRY_COUNT_HEADER = "x-pystream-retry-count"
"""Counts the copies of a message that a service has published for another attempt."""

_DIGITS = 10
T = TypeVar("T")


class StateMarker:
    """Marks a parameter as the app's state; what `State[T]` puts into the annotation."""


State: TypeAlias = Annotated[T, StateMarker]
"""A parameter `State[T]` receives what `PyStream(state=...)` opened, as it is.

Under concurrent forms every handler shares the one object.
"""


def attempt_of(delivery: Delivery) -> int:
    """Which attempt this delivery is, from 1: by the broker's count, else by the retry header."""
    count = delivery.delivery_count
    if count is not None:
        return count

    value = find_header(delivery.headers, RETRY_COUNT_HEADER)
    # The length: a number that no service has counted to is malformed, and slow to read.
    return int(value) + 1 if value is not None and value.isdigit() and len(value) < _DIGITS else 1


class Context:
    """One delivery, as its handler may look at it. Valid while the handler runs.

    Attributes:
        subscription: The name of the subscription.
    """

    __slots__ = ("_delivery", "_headers", "_reruns", "subscription")

    def __init__(self, delivery: Delivery, subscription: str, reruns: int = 0) -> None:
        self._delivery = delivery
        self.subscription: str = subscription
        self._reruns = reruns
        self._headers: Headers | None = None

    @property
    def id(self) -> str:
        """The broker's identity of the message."""
        return self._delivery.id

    @property
    def destination(self) -> str:
        """The full name of the topic, queue or subject the message was published to."""
        return self._delivery.destination

    @property
    def payload(self) -> bytes:
        """The body as it came."""
        return self._delivery.payload

    @property
    def key(self) -> Key | None:
        """The message key, or none."""
        return self._delivery.key

    @property
    def headers(self) -> Headers:
        """A working copy of the headers; changing it changes nothing outside this context.

        Raises:
            DecodeError: The broker's headers cannot be read.
        """
        if self._headers is None:
            self._headers = Headers(self._delivery.headers)

        return self._headers

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1.

        By the broker's count, else by the header `x-pystream-retry-count`; plus the runs in
        place so far. Whether the count survives a restart is the broker's affair.
        """
        return attempt_of(self._delivery) + self._reruns

    def __repr__(self) -> str:
        return f"Context(subscription={self.subscription!r}, id={self.id!r}, attempt={self.attempt})"
