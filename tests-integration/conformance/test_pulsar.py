"""The Pulsar broker passes the conformance suite against a server."""

from __future__ import annotations

from typing import Any, Protocol

import anyio
import pytest
from pystream.clock import LoopClock
from pystream.protocols import Broker, Mounting, Outgoing
from pystream_pulsar import PulsarBroker, PulsarPublishPolicy, PulsarSubscription
from pystream_testing.conformance import Capabilities, ConformanceSuite, Subject


class _Server(Protocol):
    """Whatever the fixture gives."""

    @property
    def url(self) -> str: ...


class _PulsarSubject(Subject):
    # Properties are text in UTF-8: the plugin refuses a header that is not.
    capabilities = Capabilities(refused_headers=frozenset({"binary"}))
    live = True
    # The embedded server forgets the rest of a producer batch of which a part is acknowledged.
    policy = PulsarPublishPolicy(batching=False)

    def __init__(self, url: str) -> None:
        self._url = url

    def broker(self) -> PulsarBroker:
        return PulsarBroker(self._url)

    def source(self, broker: Broker, destination: str, subscription: str) -> Any:
        return PulsarSubscription(destination, subscription)


async def _use_once(subject: Subject) -> None:
    """The first topic of a server that has just started takes longer than a step of the suite may."""
    broker = subject.broker()
    connection = await broker.connect(LoopClock())
    topic = subject.destination("first-use")
    subscriber = await connection.subscribe(subject.source(broker, topic, "first"), Mounting(name="first"))
    await connection.publisher().publish(Outgoing(topic, b"first", {}))
    await subscriber.close()
    await connection.close()


@pytest.fixture(scope="module")
def used_server(pulsar_server: _Server) -> _Server:
    """A server that has had a subscription and a message."""
    anyio.run(_use_once, _PulsarSubject(pulsar_server.url))
    return pulsar_server


@pytest.mark.gate
@pytest.mark.promise("SDK-101")
class TestPulsar(ConformanceSuite):
    @pytest.fixture
    def subject(self, used_server: _Server) -> Subject:
        """Pulsar with SHARED subscriptions."""
        return _PulsarSubject(used_server.url)
