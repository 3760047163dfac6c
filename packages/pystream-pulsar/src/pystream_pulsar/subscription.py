"""`PulsarSubscription`: which topic a handler reads, and how."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

from pystream.errors import ConfigurationError
from pystream.protocols import RetryKind, SourceParameters

from pystream_pulsar._checks import is_name, is_seconds, is_whole
from pystream_pulsar.message import PulsarMessage
from pystream_pulsar.position import PulsarPosition
from pystream_pulsar.topic import PulsarTopic

__all__ = ["InitialPosition", "MessageKey", "MessageTopic", "PulsarSubscription", "SubscriptionType"]


class SubscriptionType(enum.Enum):
    """How the consumers of one subscription divide its messages among them."""

    SHARED = "Shared"
    """In turn; no order."""
    EXCLUSIVE = "Exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "Failover"
    """One active consumer; another takes over when it leaves."""
    KEY_SHARED = "KeyShared"
    """Each key has one consumer at a time."""


class InitialPosition(enum.Enum):
    """Where a subscription begins that does not exist yet; one that exists goes on where it was."""

    LATEST = "Latest"
    """With the next message published."""
    EARLIEST = "Earliest"
    """With the oldest message the topic still has."""


class _Marker(enum.Enum):
    """What stands in `Annotated` for parameters whose type alone does not tell them."""

    KEY = "key"
    TOPIC = "topic"


MessageKey: TypeAlias = Annotated[str | None, _Marker.KEY]
"""The annotation of a handler's parameter that receives the message's key, or none."""

MessageTopic: TypeAlias = Annotated[str, _Marker.TOPIC]
"""The annotation of a handler's parameter that receives the message's full topic name."""


def _itself(message: PulsarMessage) -> PulsarMessage:
    return message


_PARAMETERS: Final[SourceParameters] = MappingProxyType(
    {
        PulsarMessage: _itself,
        PulsarPosition: attrgetter("position"),
        _Marker.KEY: attrgetter("key"),
        _Marker.TOPIC: attrgetter("topic"),
    }
)
_SINGLE_READER = frozenset({SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER})
_LEAST_ACK_TIMEOUT = 10.0  # the client refuses less


@dataclass(frozen=True, slots=True, init=False)
class PulsarSubscription:
    """A subscription to one topic; implements `pystream.protocols.SubscriptionSource`.

    A plain value: checked when it is made, comparable, and connected to nothing.

    Args:
        topic: A topic's name in any form `PulsarTopic` takes.
        name: The subscription's name on the server, not empty.
        type: How its consumers divide the messages.
        initial_position: Where it begins when it does not exist yet.
        receiver_queue_size: How many messages the client reads ahead, 1 or more. None: the
            larger of 100 and four times what the handler's mount holds at once.
        ack_timeout: Seconds after which the client asks for unacknowledged messages again,
            10 or more; none for never. A delay of `retry_after` must stay below it.
        consumer_name: A name that shows in the server's statistics; none for a generated one.
        properties: Shown in the server's statistics.
        read_compacted: Read the compacted view of the topic; EXCLUSIVE and FAILOVER only.

    Attributes:
        topic: The topic, resolved.
        subscription_name: The subscription's name on the server.

    Raises:
        ConfigurationError: An option cannot work; the message names the subscription and the way out.
    """

    topic: PulsarTopic
    subscription_name: str
    type: SubscriptionType
    initial_position: InitialPosition
    receiver_queue_size: int | None
    ack_timeout: float | None
    consumer_name: str | None
    properties: Mapping[str, str] = field(hash=False)
    read_compacted: bool

    def __init__(
        self,
        topic: str | PulsarTopic,
        name: str,
        *,
        type: SubscriptionType = SubscriptionType.SHARED,  # noqa: A002  # the field's word for it
        initial_position: InitialPosition = InitialPosition.LATEST,
        receiver_queue_size: int | None = None,
        ack_timeout: float | None = None,
        consumer_name: str | None = None,
        properties: Mapping[str, str] | None = None,
        read_compacted: bool = False,
    ) -> None:
        values = {
            "topic": PulsarTopic(topic),
            "subscription_name": name,
            "type": type,
            "initial_position": initial_position,
            "receiver_queue_size": receiver_queue_size,
            "ack_timeout": ack_timeout,
            "consumer_name": consumer_name,
            "properties": MappingProxyType(dict(properties or {})),
            "read_compacted": read_compacted,
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

        self._check()

    def replace(self, **changes: Any) -> PulsarSubscription:
        """The same subscription with other options, named as in the constructor.

        Raises:
            ConfigurationError: The result cannot work.
            TypeError: There is no option of that name.
        """
        options: dict[str, Any] = {option: getattr(self, option) for option in self.__slots__}
        options["name"] = options.pop("subscription_name")
        return PulsarSubscription(**{**options, **changes})

    @property
    def name(self) -> str:
        """The name it is reported by: the topic's full name."""
        return self.topic.full_name

    @property
    def retry(self) -> RetryKind:
        """`in_place` where a negative acknowledgement does something else or nothing (trap 5).

        On EXCLUSIVE and FAILOVER it brings back everything unacknowledged and counts nothing;
        on a non-persistent topic it has no effect.
        """
        return "in_place" if self.type in _SINGLE_READER or not self.topic.persistent else "broker"

    @property
    def batch_wait(self) -> float | None:
        """None: the runtime's own."""
        return None

    @property
    def max_delay(self) -> float | None:
        """The acknowledgement timeout: past it the client asks for a held message again."""
        return self.ack_timeout

    @property
    def copies_to(self) -> str | None:
        """The topic's full name, also for a message of one of its partitions."""
        return self.topic.full_name

    @property
    def parameters(self) -> SourceParameters:
        """`PulsarMessage`, `PulsarPosition`, `MessageKey` and `MessageTopic`."""
        return _PARAMETERS

    def _check(self) -> None:
        name = self.subscription_name
        if not is_name(name):
            raise ConfigurationError(f"a subscription to {self.topic} needs a name, not {name!r}")

        self._check_kinds()
        self._check_queue_size()
        self._check_ack_timeout()
        if self.read_compacted and self.type not in _SINGLE_READER:
            raise self._refusal(
                f"read_compacted works on EXCLUSIVE and FAILOVER only, and its type is {self.type.name}; "
                "choose one of these types or leave read_compacted out"
            )

        if self.consumer_name is not None and not is_name(self.consumer_name):
            raise self._refusal("consumer_name is empty; give a name, or leave it out for a generated one")

        for text in (*self.properties.keys(), *self.properties.values()):
            if not isinstance(text, str):
                raise self._refusal(f"properties are text to text, and one of them holds {type(text).__name__}")

    def _check_kinds(self) -> None:
        if not isinstance(self.type, SubscriptionType):
            raise self._refusal(f"type must be a SubscriptionType, not {self.type!r}")

        if not isinstance(self.initial_position, InitialPosition):
            raise self._refusal(f"initial_position must be an InitialPosition, not {self.initial_position!r}")

    def _check_queue_size(self) -> None:
        size = self.receiver_queue_size
        if size is not None and not is_whole(size):
            raise self._refusal(f"receiver_queue_size must be a whole number of 1 or more, not {size!r}")

    def _check_ack_timeout(self) -> None:
        timeout = self.ack_timeout
        if timeout is not None and not is_seconds(timeout, least=_LEAST_ACK_TIMEOUT):
            raise self._refusal(
                f"ack_timeout={timeout!r}: the client takes {_LEAST_ACK_TIMEOUT:g} seconds or more; "
                "raise it, or leave it out for none"
            )

    def _refusal(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"subscription {self.subscription_name!r} to {self.topic}: {why}")
