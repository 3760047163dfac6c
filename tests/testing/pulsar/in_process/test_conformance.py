"""The production broker over the in-process transport passes the conformance suite."""

from __future__ import annotations

from typing import Any

import pytest
from pystream.protocols import Broker, Clock
from pystream_pulsar import PulsarBroker, PulsarSubscription
from pystream_testing.conformance import Capabilities, ConformanceSuite, Subject
from pystream_testing.pulsar.in_process import InProcessCluster, InProcessConnection, connect


class _InProcessBroker(PulsarBroker):
    """A broker object that a suite can connect by itself, as often as it likes."""

    def __init__(self, cluster: InProcessCluster) -> None:
        super().__init__("pulsar://localhost:6650")
        self._cluster = cluster

    async def connect(self, clock: Clock) -> InProcessConnection:
        return await connect(self, clock, cluster=self._cluster)


class _InProcessSubject(Subject):
    # Properties are text in UTF-8, as live.
    capabilities = Capabilities(refused_headers=frozenset({"binary"}))

    def __init__(self) -> None:
        self._cluster = InProcessCluster()

    def broker(self) -> _InProcessBroker:
        return _InProcessBroker(self._cluster)

    def source(self, broker: Broker, destination: str, subscription: str) -> Any:
        return PulsarSubscription(destination, subscription)


@pytest.mark.promise("TESTING-80")
class TestInProcessPulsar(ConformanceSuite):
    @pytest.fixture
    def subject(self) -> Subject:
        """A cluster of its own for every check."""
        return _InProcessSubject()
