"""`RedisPublisher` and its policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pystream.errors import ConfigurationError, PublishError
from pystream.protocols import Outgoing

from pystream_redis._fields import fields_of
from pystream_redis._link import BrokenLink, Command, Refusal
from pystream_redis._pipe import Pipe

__all__ = ["RedisPublishPolicy", "RedisPublisher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisPublishPolicy:
    """How messages are added; implements `pystream.protocols.PublishPolicy`.

    Attributes:
        max_length: About how many entries a stream keeps, 1 or more: older ones are trimmed
            away, handled or not. None keeps all.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.max_length is not None and not (type(self.max_length) is int and self.max_length >= 1):
            raise ConfigurationError(
                f"RedisPublishPolicy(max_length={self.max_length!r}): give a whole number of 1 or more, or leave it out"
            )

    @property
    def options(self) -> type | None:
        """None: a single publish takes no options."""
        return None


class RedisPublisher:
    """Adds messages to streams; made by `ConnectedRedisBroker.publisher`."""

    __slots__ = ("_pipe", "policy")

    def __init__(self, pipe: Pipe, policy: RedisPublishPolicy) -> None:
        self._pipe = pipe
        self.policy: RedisPublishPolicy = policy

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        """Return when the server has added the message (XADD). From any loop or thread.

        Args:
            outgoing: The message; its destination is a stream's key.
            options: None: a single publish takes no options.

        Raises:
            PublishError: It cannot be stored, was refused, or was not confirmed; then it may
                have been stored all the same.
            BrokerClosed: The connection was closed.

        Cancel safety: a cancelled publish may or may not have been sent.
        """
        if options is not None:
            raise PublishError(f"Redis has no publish options, and {type(options).__name__} was given; leave it out")

        [answer] = await self._ask(outgoing, self._command(outgoing))
        if isinstance(answer, Refusal):
            raise PublishError(f"a message to {outgoing.destination!r} was refused: {answer}") from answer

    async def _ask(self, outgoing: Outgoing, command: Command) -> list[Any]:
        try:
            return await self._pipe.ask(command)
        except BrokenLink as error:
            raise PublishError(
                f"a message to {outgoing.destination!r} was not confirmed and may have been stored: {error}"
            ) from error

    def _command(self, outgoing: Outgoing) -> Command:
        stream = outgoing.destination
        if not isinstance(stream, str) or not stream:
            raise PublishError(f"{stream!r} is no stream of Redis; give a name of one character or more")

        trim = () if self.policy.max_length is None else ("MAXLEN", "~", self.policy.max_length)
        return ("XADD", stream, *trim, "*", *fields_of(outgoing))
