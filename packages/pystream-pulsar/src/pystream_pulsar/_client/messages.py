"""A received message: its payload at once, everything else when it is asked for.

Each attribute costs a call or several into the client, so a service that reads only
payloads pays for none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pystream.errors import DecodeError

from pystream_pulsar._client.ids import batch_size
from pystream_pulsar.transport import Identity

__all__ = ["ClientMessage", "received"]


class ClientMessage:
    """Implements `pystream_pulsar.transport.RawMessage` over the binding's message. Made by `received`.

    Attributes:
        native: The binding's message, which is what acknowledgements are about.
        payload: The body, copied out of the client once.
    """

    __slots__ = ("_identity", "native", "payload")  # `_identity` stays unset until it is asked for

    native: Any
    payload: bytes
    _identity: Identity

    @property
    def identity(self) -> Identity:
        """Which message this is; kept, since it takes six calls."""
        try:
            return self._identity
        except AttributeError:
            place = self.native.message_id()
            self._identity = identity = Identity(
                self.native.topic_name(), place.ledger_id(), place.entry_id(), place.batch_index()
            )
            return identity

    @property
    def batch_size(self) -> int:
        """How many messages share its entry: 1 outside a producer batch."""
        return batch_size(self.position)

    @property
    def chunked(self) -> bool:
        """Whether it was put together from several entries: its id then shows the first and the last."""
        return ";" in str(self.native.message_id())

    @property
    def redelivery_count(self) -> int:
        """How often the server has redelivered its entry, from 0."""
        count: int = self.native.redelivery_count()
        return count

    @property
    def position(self) -> bytes:
        """The serialised message id."""
        position: bytes = self.native.message_id().serialize()
        return position

    @property
    def key(self) -> str | None:
        """The partition key, or none; none too for a key that is not UTF-8."""
        return _text(self.native.partition_key)

    @property
    def ordering_key(self) -> str | None:
        """The ordering key, or none; none too for a key that is not UTF-8."""
        return _text(self.native.ordering_key)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties.

        Raises:
            DecodeError: One of them is not UTF-8; the client then gives none of them.
        """
        try:
            properties: dict[str, str] = self.native.properties()
        except UnicodeDecodeError as error:
            raise DecodeError(
                f"the properties of a message of {self.native.topic_name()} cannot be read: "
                f"one of them is not UTF-8 text ({error.reason}); its producer must send text"
            ) from error

        return properties

    @property
    def publish_time(self) -> float:
        """When the producer sent it, in seconds since 1970."""
        milliseconds: int = self.native.publish_timestamp()
        return milliseconds / 1000

    @property
    def event_time(self) -> float | None:
        """When it happened, in seconds since 1970, or none."""
        milliseconds: int = self.native.event_timestamp()
        return milliseconds / 1000 if milliseconds else None

    @property
    def producer_name(self) -> str:
        """Who sent it, or empty."""
        return _text(self.native.producer_name) or ""


def received(natives: Iterable[Any]) -> list[ClientMessage]:
    """These messages of the binding as ours."""
    messages: list[ClientMessage] = []
    for native in natives:
        message = ClientMessage()  # filled here: an `__init__` would cost more than all the rest but the copy
        message.native = native
        message.payload = native.data()
        messages.append(message)

    return messages


def _text(getter: Any) -> str | None:
    try:
        text: str = getter()
    except UnicodeDecodeError:
        return None

    return text or None
