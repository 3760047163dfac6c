"""What cannot work with a server is one clear sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable

import anyio
import pytest
from live.choice import LiveServer
from pystream import PyStream, mount
from pystream.errors import BrokerClosed, ConfigurationError, ConnectError, NotConnected, ServiceFailed
from pystream.protocols import Outgoing
from pystream_pulsar import PulsarBroker, PulsarSubscription

pytestmark = [pytest.mark.anyio, pytest.mark.gate]


async def ignore(body: bytes) -> None:
    """A handler of anything."""


def unused_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.promise("PULSAR-107")
async def test_no_server() -> None:
    """Without a server the start fails at once, naming the address and the reason."""
    address = f"pulsar://127.0.0.1:{unused_port()}"
    app = PyStream("reader").with_broker(PulsarBroker(address), mount(ignore, PulsarSubscription("orders", "reader")))
    with anyio.fail_after(15), pytest.raises(ServiceFailed) as failed:
        async with app.start():
            pytest.fail("the service started without a server")

    error = failed.value
    assert (error.step, error.culprit) == ("connect", address)
    assert isinstance(error.__cause__, ConnectError)
    assert "\n" not in str(error)
    assert address in str(error)
    assert "refused" in str(error)


@pytest.mark.promise("PULSAR-108")
async def test_a_topic_name_that_is_none(pulsar_server: LiveServer) -> None:
    """A name that is no topic is refused before anything is sent, saying which part is wrong."""
    async with PyStream("sender").with_broker(PulsarBroker(pulsar_server.url)).start() as running:
        with pytest.raises(ConfigurationError, match="a b") as refused:
            await running.publisher().publish(b"", "persistent://public/default/a b")

    assert "\n" not in str(refused.value)


@pytest.mark.promise("PULSAR-109")
async def test_a_handle_outside_its_connection(pulsar_server: LiveServer, unique: Callable[[str], str]) -> None:
    """A publisher raises `NotConnected` before its broker is connected and `BrokerClosed` afterwards."""
    broker, message = PulsarBroker(pulsar_server.url), Outgoing(unique("handle"), b"hello", {})
    handle = broker.publisher()
    with pytest.raises(NotConnected):
        await handle.publish(message)

    async with PyStream("sender").with_broker(broker).start() as running:
        await handle.publish(message)
        live = running.publisher()

    with pytest.raises(BrokerClosed):
        await handle.publish(message)

    with pytest.raises(BrokerClosed):
        await live.publish(b"late", message.destination)
