"""`PulsarMessage`: one delivery, as the runtime and handlers see it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar

from pystream.protocols import RetryKind

from pystream_pulsar.position import PulsarPosition
from pystream_pulsar.transport import Identity, RawMessage

if TYPE_CHECKING:
    from pystream_pulsar._driver.session import Session

__all__ = ["PulsarMessage"]

_log = logging.getLogger("pystream_pulsar")
_PARTITION = re.compile(r"-partition-(\d+)\Z")

OPEN, _SETTLED, _RELEASED = 0, 1, 2


class PulsarMessage:
    """A message on its way through a handler; implements `pystream.protocols.Delivery`.

    Made by a subscription, never by a service. Only the payload is there from the start;
    everything else is read from the client at each access, and costs a call or several.

    Attributes:
        payload: The body.
        decode_error: None: a Pulsar message always has a readable frame.
    """

    # `_identity` and `_count` stay unset until somebody asks: two stores less per message.
    __slots__ = ("_count", "_identity", "_raw", "_session", "_state", "payload")

    payload: bytes
    decode_error: ClassVar[Exception | None] = None
    _count: int
    _identity: Identity
    _raw: RawMessage
    _session: Session
    _state: int

    def __repr__(self) -> str:
        return f"<PulsarMessage {self.id} of {self.topic}>"

    @property
    def id(self) -> str:
        """The message id as `ledger:entry:partition`, and `:index` within a producer batch."""
        topic, ledger, entry, index = self.identity
        partition = _PARTITION.search(topic)
        text = f"{ledger}:{entry}:{partition.group(1) if partition else -1}"
        return text if index < 0 else f"{text}:{index}"

    @property
    def identity(self) -> Identity:
        """Which message this is, whatever object stands for it."""
        try:
            return self._identity
        except AttributeError:
            self._identity = identity = self._raw.identity
            return identity

    @property
    def topic(self) -> str:
        """The full name of its topic, with `-partition-N` where there is one."""
        return self.identity.topic

    @property
    def destination(self) -> str:
        """The full name of its topic."""
        return self.identity.topic

    @property
    def position(self) -> PulsarPosition:
        """Where it stands in its topic."""
        return PulsarPosition(self.identity.topic, self._raw.position)

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The properties, with their values in UTF-8.

        Raises:
            DecodeError: One of the properties is not UTF-8; nothing else about the message fails then.
        """
        return {name: value.encode() for name, value in self._raw.properties.items()}

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties as text.

        Raises:
            DecodeError: One of them is not UTF-8.
        """
        return self._raw.properties

    @property
    def key(self) -> str | None:
        """The partition key; none too if it is empty."""
        return self._raw.key or None

    @property
    def ordering_key(self) -> str | None:
        """The ordering key, which KEY_SHARED prefers to the key; none too if it is empty."""
        return self._raw.ordering_key or None

    @property
    def lane_key(self) -> str | None:
        """What `workers=by_key(n)` goes by: the ordering key, else the key."""
        return self._raw.ordering_key or self._raw.key or None

    @property
    def delivery_count(self) -> int:
        """How often this message was handed out, this time included, from 1.

        The server counts per entry and starts again at 0 when the last consumer leaves;
        where the subscription has seen every failure of a batch itself, its own smaller
        count of this message is given.
        """
        try:
            return self._count
        except AttributeError:
            return self._raw.redelivery_count + 1

    @property
    def retry(self) -> RetryKind | None:
        """`in_place` for a chunked message, for which a negative acknowledgement has no effect (trap 5)."""
        return "in_place" if self._raw.chunked else None

    @property
    def publish_time(self) -> float:
        """When its producer sent it, in seconds since 1970."""
        return self._raw.publish_time

    @property
    def event_time(self) -> float | None:
        """When it happened, in seconds since 1970, if its producer said so."""
        return self._raw.event_time

    @property
    def producer_name(self) -> str:
        """Who sent it, or empty."""
        return self._raw.producer_name

    async def ack(self) -> None:
        """Acknowledge this message alone.

        Raises:
            SettlementError: It was settled or released before, or the client did not take it.
            BrokerClosed: The subscription was closed.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        session = self._session
        if get_ident() == session.fast_thread and not self._state:
            found = session.table.pop(self.payload, None)
            if found is self:
                self._state = _SETTLED
                acknowledge = session.acknowledge  # not called as a method, which it is not: that takes a slow look-up
                acknowledge(self._raw)
                return

            if found is not None:  # several messages with this payload
                session.table[self.payload] = found

        session.settle(self)

    async def reject(self) -> None:
        """Acknowledge it and log that it was dropped: Pulsar has no refusal.

        Raises:
            SettlementError: As `ack`.
            BrokerClosed: As `ack`.

        Cancel safety: as `ack`.
        """
        self._session.settle(self)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("dropped message %s of %s: acknowledged, since Pulsar has no refusal", self.id, self.topic)

    async def requeue(self) -> None:
        """Ask for it again; the server delivers it a few tenths of a second later, its count raised.

        Raises:
            SettlementUnsupported: Its subscription or the message itself is retried in place.
            SettlementError: It was settled or released before.
            BrokerClosed: The subscription was closed.

        Cancel safety: as `ack`.
        """
        self._session.retry(self, 0.0)

    async def retry_after(self, delay: float) -> None:
        """Hold it back, and ask for it again `delay` seconds from now (0 or more).

        Raises:
            SettlementRejected: The delay reaches the acknowledgement timeout; nothing was settled.
            SettlementUnsupported: As `requeue`.
            SettlementError: As `requeue`.
            BrokerClosed: As `requeue`.

        Cancel safety: as `ack`.
        """
        self._session.retry(self, delay)

    def release(self) -> None:
        """Say that it will not be settled; the server gets it back when the subscription closes.

        Idempotent, from any thread, and without effect on a settled message.
        """
        if not self._state:
            self._state = _RELEASED
            self._session.release(self)

    # What follows is for the driver of this package.

    @property
    def _settled_as(self) -> str:
        return ("open", "settled", "released")[self._state]

    def _claim(self) -> bool:
        """Whether this caller is the one who settles it; true once."""
        if self._state:
            return False

        self._state = _SETTLED
        return True

    def _counted(self, count: int) -> None:
        """From here on, `delivery_count` is `count`."""
        self._count = count

    def _adopt(self, raw: RawMessage) -> None:
        """Stand for another copy of the same message, and keep the count of the copy that is handled."""
        self._counted(self.delivery_count)
        self._raw = raw
