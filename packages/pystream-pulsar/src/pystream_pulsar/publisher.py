"""`PulsarPublisher` and `PulsarPublishPolicy`: sending messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pystream.errors import ConfigurationError, NotConnected, PyStreamError
from pystream.protocols import Outgoing

from pystream_pulsar._checks import is_seconds, is_whole

if TYPE_CHECKING:
    from pystream_pulsar._producers import Producers

__all__ = ["PulsarPublishPolicy", "PulsarPublisher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarPublishPolicy:
    """How messages are sent; implements `pystream.protocols.PublishPolicy`.

    Attributes:
        send_timeout: Seconds until a message that is not confirmed fails, more than 0. It may
            have been stored all the same.
        max_pending: The most messages per topic that the client holds unconfirmed, 1 or more;
            further ones wait for their turn.
        batching: Whether messages that are published at the same time share an entry of the
            topic. It makes bulk publishing several times faster; a redelivery then concerns
            the whole entry, settled neighbours are kept from the handler by the plugin.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    send_timeout: float = 30.0
    max_pending: int = 1000
    batching: bool = True

    def __post_init__(self) -> None:
        if not is_seconds(self.send_timeout) or self.send_timeout == 0:
            raise ConfigurationError(
                f"PulsarPublishPolicy(send_timeout={self.send_timeout!r}): give a number of seconds above 0"
            )

        if not is_whole(self.max_pending):
            raise ConfigurationError(
                f"PulsarPublishPolicy(max_pending={self.max_pending!r}): give a whole number of 1 or more"
            )

    @property
    def options(self) -> type | None:
        """None: a single publish has no options yet."""
        return None


def _unbound() -> PyStreamError:
    return NotConnected("this PulsarPublisher belongs to no broker; make it with broker.publisher()")


class PulsarPublisher:
    """Sends messages; implements `pystream.protocols.Publisher`.

    Made by a broker or a connected broker; belongs to one connection. Those of one connection
    and equal policies share one producer per topic, which the first publish to the topic opens.

    Args:
        policy: How messages are sent.
        missing: Why it cannot publish while it belongs to no connection.
    """

    __slots__ = ("_missing", "_producers", "policy")

    def __init__(self, policy: PulsarPublishPolicy, missing: Callable[[], PyStreamError] = _unbound) -> None:
        self.policy: PulsarPublishPolicy = policy
        self._missing = missing
        self._producers: Producers | None = None

    def __repr__(self) -> str:
        return f"PulsarPublisher({self.policy!r})"

    def bind(self, producers: Producers) -> None:
        """Let it belong to a connection; called by the broker."""
        self._producers = producers

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        """Return when the server has confirmed the message. From any loop or thread of the app.

        Args:
            outgoing: The message; its destination is a topic's name in any form `PulsarTopic`
                takes, its key and the values of its headers are text in UTF-8.
            options: None; a single publish has no options yet.

        Raises:
            ConfigurationError: The destination is no topic, or options were given.
            PulsarPublishError: The message was refused or not confirmed, or no producer could be opened.
            NotConnected: The broker is not connected yet.
            BrokerClosed: The broker was closed.

        Cancel safety: a cancelled publish may or may not have been sent.
        """
        if options is not None:
            raise ConfigurationError(
                f"a publish to Pulsar has no options yet, and {type(options).__name__} was given for "
                f"{outgoing.destination}; leave it out"
            )

        if self._producers is None:
            raise self._missing()

        await self._producers.publish(outgoing)
