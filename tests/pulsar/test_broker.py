"""`PulsarBroker`: configuration and its refusals; handles before and after a connection."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed, ConfigurationError, ConnectError, NotConnected
from pystream.protocols import Broker, ConnectedBroker, Outgoing
from pystream_pulsar import (
    TLS,
    ConnectedPulsarBroker,
    PulsarBroker,
    PulsarConnectError,
    PulsarSubscription,
    SubscriptionType,
    Token,
)
from pystream_pulsar.broker import broker_from_url
from pystream_pulsar.transport import ServerInfo

from tests.pulsar.scripted import MOUNTING, ManualClock, ScriptedTransport

_HINT = "write pulsar://host:6650, with several hosts between commas"
_NO_PATH = (
    "the URL of a Pulsar broker ends after its hosts: no path, query or fragment; options are arguments of PulsarBroker"
)


@pytest.mark.promise("PULSAR-32")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("pulsar://localhost", "pulsar://localhost:6650"),
        ("pulsar://localhost:6651/", "pulsar://localhost:6651"),
        ("pulsar+ssl://localhost", "pulsar+ssl://localhost:6651"),
        ("pulsar+ssl://a:1,b", "pulsar+ssl://a:1,b:6651"),
        ("PULSAR://a:1, b:2,c", "pulsar://a:1,b:2,c:6650"),
        ("pulsar://[::1]:6650", "pulsar://[::1]:6650"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    """One host or several, with or without a port, are taken; nothing is connected."""
    broker: Broker = PulsarBroker(url)
    assert broker.describe() == broker_from_url(url).describe() == address
    assert repr(broker) == f"PulsarBroker({address!r})"


ADDRESSES: list[tuple[str, str]] = [
    ("localhost:6650", f"the URL of a Pulsar broker has no scheme; {_HINT}"),
    ("http://localhost:8080", f"'http' is no scheme of a Pulsar broker; {_HINT}"),
    ("pulsar://", f"the URL of a Pulsar broker lacks a host; {_HINT}"),
    ("pulsar://a:6650,,b", f"the URL of a Pulsar broker lacks a host; {_HINT}"),
    ("pulsar://:6650", f"':6650' in the URL of a Pulsar broker is no host and port; {_HINT}"),
    ("pulsar://a:x", f"'a:x' in the URL of a Pulsar broker is no host and port; {_HINT}"),
    ("pulsar://a:70000", f"port 70000 in the URL of a Pulsar broker is none; {_HINT}"),
    (
        "pulsar://a/path",
        _NO_PATH,
    ),
    (
        "pulsar://a?token=secret",
        _NO_PATH,
    ),
    (
        "pulsar://me:secret@a",
        "the URL of a Pulsar broker holds user information before an '@'; Pulsar has none in its URL, take it out",
    ),
]
"""What is no URL, and the whole text of the refusal."""


@pytest.mark.promise("PULSAR-32")
@pytest.mark.parametrize(("url", "message"), ADDRESSES)
def test_bad_addresses(url: str, message: str) -> None:
    """A URL that cannot be used is refused at construction, saying what is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarBroker(url)

    assert str(caught.value) == message


@pytest.mark.promise("PULSAR-32")
@given(st.text(), st.text())
def test_credentials_are_never_shown(before: str, after: str) -> None:
    """Whatever stands before an '@' in a URL is in no message."""
    hidden = "s3cr3t-Pa55"
    with pytest.raises(ConfigurationError) as caught:
        PulsarBroker(f"pulsar://{before}{hidden}@{after}")

    assert hidden not in str(caught.value)


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"operation_timeout": 0.5}, "PulsarBroker(operation_timeout=0.5): give 1 second or more"),
    ({"connection_timeout": None}, "PulsarBroker(connection_timeout=None): give 1 second or more"),
    ({"io_threads": 0}, "PulsarBroker(io_threads=0): give a whole number of 1 or more"),
    (
        {"default_subscription": " "},
        "PulsarBroker(default_subscription=...): the name is empty; leave it out for none",
    ),
]
"""Options of a broker, and the whole text of the refusal."""


@pytest.mark.promise("PULSAR-32")
@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    """An option that cannot work is refused at construction."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarBroker("pulsar://localhost", **options)

    assert str(caught.value) == message


SECURITY: list[tuple[str, dict[str, Any], str]] = [
    ("pulsar://a", {"auth": "s3cr3t"}, "PulsarBroker(auth=...): give a Token, not str"),
    ("pulsar+ssl://a", {"tls": True}, "PulsarBroker(tls=...): give a TLS, not bool"),
    (
        "pulsar://a",
        {"tls": TLS()},
        "PulsarBroker('pulsar://a:6650', tls=...): the URL asks for a connection without TLS; begin it with "
        "pulsar+ssl://, or leave tls out",
    ),
]
"""URLs with `auth` and `tls`, and the whole text of the refusal."""


@pytest.mark.promise("PULSAR-122")
@pytest.mark.parametrize(("url", "options", "message"), SECURITY)
def test_security_that_cannot_be(url: str, options: dict[str, Any], message: str) -> None:
    """What is no `Token` or `TLS`, and TLS for a URL without it, is refused at construction, showing nothing."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarBroker(url, **options)

    assert str(caught.value) == message


@pytest.mark.promise("PULSAR-121")
def test_a_broker_does_not_show_its_token() -> None:
    """Neither the repr nor the description of a broker holds its token."""
    broker = PulsarBroker("pulsar+ssl://a", auth=Token("s3cr3t"), tls=TLS())
    assert repr(broker) == "PulsarBroker('pulsar+ssl://a:6651')"
    assert "s3cr3t" not in broker.describe()


@pytest.mark.promise("PULSAR-33")
def test_bare_names() -> None:
    """A bare topic name joins the broker's default subscription, of type SHARED; without one it is refused."""
    source = PulsarBroker("pulsar://localhost", default_subscription="app").default_source("orders")
    assert source == PulsarSubscription("orders", "app", type=SubscriptionType.SHARED)
    with pytest.raises(ConfigurationError) as caught:
        PulsarBroker("pulsar://localhost").default_source("orders")

    assert str(caught.value) == (
        "the bare topic name 'orders' needs a subscription: write PulsarSubscription('orders', 'name'), or give "
        "PulsarBroker a default_subscription"
    )
    with pytest.raises(ConfigurationError, match="'a/b' is no name of a Pulsar topic"):
        PulsarBroker("pulsar://localhost").default_source("a/b")


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-30")
async def test_a_handle_made_before_the_connection() -> None:
    """A publisher made before its broker was connected raises NotConnected."""
    publisher = PulsarBroker("pulsar://localhost").publisher()
    with pytest.raises(NotConnected, match="the Pulsar broker pulsar://localhost:6650 is not connected yet"):
        await publisher.publish(Outgoing("orders", b"x", {}))


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-34")
async def test_nobody_answers() -> None:
    """A connect to a port where nobody listens fails with the address and the reason, and leaves nothing open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    broker = PulsarBroker(f"pulsar://127.0.0.1:{port}", connection_timeout=5)
    publisher = broker.publisher()
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}"):
        await broker.connect(LoopClock())

    with pytest.raises(NotConnected):
        await publisher.publish(Outgoing("orders", b"x", {}))


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-30")
async def test_a_closed_connection() -> None:
    """A closed connection opens no subscription, and names itself."""
    transport = ScriptedTransport()
    connection = ConnectedPulsarBroker(transport, clock=ManualClock(), url="pulsar://a:6650")
    typed: ConnectedBroker = connection
    await typed.close()
    with pytest.raises(BrokerClosed, match="the connection to pulsar://a:6650 was closed"):
        await connection.subscribe(PulsarSubscription("orders", "billing"), MOUNTING)

    assert transport.closed == 1
    assert transport.consumers == []


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-19")
async def test_a_foreign_source() -> None:
    """A source of another broker is refused, naming the handler and both types."""
    connection = ConnectedPulsarBroker(ScriptedTransport(), clock=ManualClock(), url="pulsar://a:6650")
    with pytest.raises(ConfigurationError) as caught:
        await connection.subscribe("orders", MOUNTING)  # type: ignore[arg-type]  # that is the point

    assert str(caught.value) == "pulsar://a:6650 takes a PulsarSubscription for 'orders', not str"


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-30")
async def test_handles_belong_to_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle made early works once connected, raises BrokerClosed afterwards, and never moves to a new connection."""
    transports: list[ScriptedTransport] = []

    def scripted(_settings: object) -> ScriptedTransport:
        transports.append(ScriptedTransport())
        transports[-1].confirms_in_line = True
        return transports[-1]

    monkeypatch.setattr("pystream_pulsar._client.connection.ClientTransport", scripted)
    outgoing = Outgoing("orders", b"x", {})
    broker = PulsarBroker("pulsar://a")
    early = broker.publisher()
    connection = await broker.connect(ManualClock())
    unused = broker.publisher()
    await early.publish(outgoing)
    await connection.close()
    later = broker.publisher()
    for handle in (early, unused, later):
        with pytest.raises(BrokerClosed, match="the connection to pulsar://a:6650 was closed"):
            await handle.publish(outgoing)

    await broker.connect(ManualClock())
    await later.publish(outgoing)
    for handle in (early, unused):
        with pytest.raises(BrokerClosed):
            await handle.publish(outgoing)

    assert [len(transport.producers) for transport in transports] == [1, 1]


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-34")
async def test_a_failed_connect_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server does not answer, the transport is closed before the error is raised."""
    transport = ScriptedTransport()

    async def refuse() -> ServerInfo:
        raise PulsarConnectError("nobody answers")

    monkeypatch.setattr(transport, "connect", refuse)
    monkeypatch.setattr("pystream_pulsar._client.connection.ClientTransport", lambda _settings: transport)
    with pytest.raises(ConnectError, match="nobody answers"):
        await PulsarBroker("pulsar://a").connect(ManualClock())

    assert transport.closed == 1
