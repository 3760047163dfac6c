"""The conformance suite of pystream, against a real Redis."""

from __future__ import annotations

from typing import Any

import pytest
from pystream.protocols import Broker
from pystream_testing.conformance import Capabilities, ConformanceSuite, Subject
from server import Server

from pystream_redis import RedisBroker, RedisStream


class RedisSubject(Subject):
    """What pystream-redis claims: everything but the order of keys over a redelivery, which nobody has."""

    capabilities = Capabilities()
    live = True

    def __init__(self, url: str) -> None:
        self._url = url

    def broker(self) -> Broker:
        return RedisBroker(self._url)

    def source(self, broker: Broker, destination: str, subscription: str) -> Any:
        return RedisStream(destination, subscription)


@pytest.mark.promise("SDK-142")
class TestRedis(ConformanceSuite):
    @pytest.fixture
    def subject(self, redis_server: Server) -> Subject:
        return RedisSubject(redis_server.url)
