"""Redis Streams for pystream: an example of a broker plugin, written with public names only."""

from __future__ import annotations

from pystream_redis.broker import ConnectedRedisBroker as ConnectedRedisBroker
from pystream_redis.broker import RedisBroker as RedisBroker
from pystream_redis.delivery import RedisDelivery as RedisDelivery
from pystream_redis.publisher import RedisPublisher as RedisPublisher
from pystream_redis.publisher import RedisPublishPolicy as RedisPublishPolicy
from pystream_redis.stream import EntryId as EntryId
from pystream_redis.stream import RedisStream as RedisStream
from pystream_redis.subscriber import RedisSubscriber as RedisSubscriber

__all__ = [
    "ConnectedRedisBroker",
    "EntryId",
    "RedisBroker",
    "RedisDelivery",
    "RedisPublishPolicy",
    "RedisPublisher",
    "RedisStream",
    "RedisSubscriber",
]
