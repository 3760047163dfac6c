"""Apache Pulsar for pystream: broker, topics, subscriptions, messages and publishers."""

from __future__ import annotations

from pystream_pulsar.auth import Token as Token
from pystream_pulsar.broker import ConnectedPulsarBroker as ConnectedPulsarBroker
from pystream_pulsar.broker import PulsarBroker as PulsarBroker
from pystream_pulsar.errors import PulsarConnectError as PulsarConnectError
from pystream_pulsar.errors import PulsarPublishError as PulsarPublishError
from pystream_pulsar.errors import PulsarSettlementError as PulsarSettlementError
from pystream_pulsar.errors import PulsarSubscribeError as PulsarSubscribeError
from pystream_pulsar.errors import PulsarSubscriptionEnded as PulsarSubscriptionEnded
from pystream_pulsar.message import PulsarMessage as PulsarMessage
from pystream_pulsar.position import PulsarPosition as PulsarPosition
from pystream_pulsar.publisher import PulsarPublisher as PulsarPublisher
from pystream_pulsar.publisher import PulsarPublishPolicy as PulsarPublishPolicy
from pystream_pulsar.subscription import InitialPosition as InitialPosition
from pystream_pulsar.subscription import MessageKey as MessageKey
from pystream_pulsar.subscription import MessageTopic as MessageTopic
from pystream_pulsar.subscription import PulsarSubscription as PulsarSubscription
from pystream_pulsar.subscription import SubscriptionType as SubscriptionType
from pystream_pulsar.tls import TLS as TLS
from pystream_pulsar.topic import PulsarTopic as PulsarTopic

__all__ = [
    "TLS",
    "ConnectedPulsarBroker",
    "InitialPosition",
    "MessageKey",
    "MessageTopic",
    "PulsarBroker",
    "PulsarConnectError",
    "PulsarMessage",
    "PulsarPosition",
    "PulsarPublishError",
    "PulsarPublishPolicy",
    "PulsarPublisher",
    "PulsarSettlementError",
    "PulsarSubscribeError",
    "PulsarSubscription",
    "PulsarSubscriptionEnded",
    "PulsarTopic",
    "SubscriptionType",
    "Token",
]

for _public in list(globals().values()):
    if isinstance(_public, type) and _public.__module__.startswith(f"{__name__}."):
        _public.__module__ = __name__  # the path people import it by, in tracebacks and documents
