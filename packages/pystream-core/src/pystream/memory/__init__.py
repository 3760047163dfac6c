"""The memory broker, and the parts of it that serve other in-process transports.

`MemoryBroker` and `MemorySubscription` are what a service uses. `Log`, `Cursor` and
`RedeliverySchedule` are plain building blocks: what was published, how far a subscription
has come, and what is held back for a delay.
"""

from __future__ import annotations

from pystream.memory.broker import MemoryBroker as MemoryBroker
from pystream.memory.broker import broker_from_url as broker_from_url
from pystream.memory.connection import ConnectedMemoryBroker as ConnectedMemoryBroker
from pystream.memory.cursor import Cursor as Cursor
from pystream.memory.delivery import MemoryDelivery as MemoryDelivery
from pystream.memory.log import Log as Log
from pystream.memory.publisher import MemoryPublisher as MemoryPublisher
from pystream.memory.publisher import MemoryPublishPolicy as MemoryPublishPolicy
from pystream.memory.schedule import RedeliverySchedule as RedeliverySchedule
from pystream.memory.subscriber import MemorySubscriber as MemorySubscriber
from pystream.memory.subscription import MemorySubscription as MemorySubscription

__all__ = [
    "ConnectedMemoryBroker",
    "Cursor",
    "Log",
    "MemoryBroker",
    "MemoryDelivery",
    "MemoryPublishPolicy",
    "MemoryPublisher",
    "MemorySubscriber",
    "MemorySubscription",
    "RedeliverySchedule",
    "broker_from_url",
]
