"""The proof that a server answers: what comes back, and a clear reason when nothing does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pystream.errors import ConnectError
from pystream_pulsar._client.probe import addresses, probe
from pystream_pulsar.errors import PulsarConnectError
from pystream_pulsar.transport import ServerInfo

from tests.pulsar.client.loopback import REFUSED, LoopbackServer

pytestmark = pytest.mark.anyio


async def refusal(url: str, *, timeout: float = 5) -> PulsarConnectError:
    """The error of a probe that must fail."""
    with anyio.fail_after(10), pytest.raises(PulsarConnectError) as raised:
        await probe(addresses(url), timeout=timeout)

    assert isinstance(raised.value, ConnectError)
    return raised.value


@pytest.mark.promise("PULSAR-51")
async def test_a_server_says_who_it_is(loopback: LoopbackServer) -> None:
    """The server's version and its largest message come back; what was sent is one CONNECT frame."""
    info = await probe(addresses(loopback.url), timeout=5)
    assert info == ServerInfo(version="a server 9.9", max_message_size=1000)
    total, size = (int.from_bytes(loopback.received[at : at + 4], "big") for at in (0, 4))
    assert (total, size) == (len(loopback.received) - 4, len(loopback.received) - 8)
    assert loopback.received[8:12] == b"\x08\x02\x12" + bytes([size - 4])


@pytest.mark.promise("PULSAR-51")
async def test_a_server_that_does_not_say_its_limit(loopback: LoopbackServer) -> None:
    """A server that names no largest message gets Pulsar's default of 5 MiB."""
    loopback.answer = bytes.fromhex("0000000b 00000007 0803 1a03 0a01 76")
    assert await probe(addresses(loopback.url), timeout=5) == ServerInfo(version="v", max_message_size=5 * 1024 * 1024)


@pytest.mark.promise("PULSAR-52")
async def test_a_refusal_is_told_in_the_servers_words(loopback: LoopbackServer) -> None:
    """A server that refuses the connection is quoted, with its address, and the result says why."""
    loopback.answer = REFUSED
    error = await refusal(loopback.url)
    assert str(error) == (
        f"cannot connect to 127.0.0.1:{loopback.port}: the server refused the connection: bad token!; "
        "no token was sent: give PulsarBroker(auth=Token(...))"
    )
    assert error.result == "AuthenticationError"


@pytest.mark.promise("PULSAR-52")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server answers there"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "a TLS server answers there"),
        (b"220 mail ready\r\n", "does not speak the Pulsar protocol"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff", "does not speak the Pulsar protocol"),
        (bytes.fromhex("00000008 00000004 08081200"), "does not speak the Pulsar protocol"),
        (bytes.fromhex("00000006 00000002 0824"), "the server asks for credentials"),
        (b"\x00\x00", "does not speak the Pulsar protocol"),
        (b"", "closed the connection without an answer, as a port with TLS does, which is reached by pulsar+ssl://"),
    ],
    ids=["http", "tls", "smtp", "garbage", "another command", "challenge", "cut short", "closed"],
)
async def test_something_else_answers(loopback: LoopbackServer, answer: bytes, reason: str) -> None:
    """What is no Pulsar server is recognised, or at least called that."""
    loopback.answer = answer
    error = await refusal(loopback.url)
    assert reason in str(error)
    assert str(loopback.port) in str(error)


@pytest.mark.promise("PULSAR-52")
async def test_nobody_listens() -> None:
    """A port on which nothing listens is called that."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        error = await refusal(f"pulsar://127.0.0.1:{reserved.getsockname()[1]}")

    assert "nothing listens there (connection refused)" in str(error)
    assert error.result == "ConnectError"


@pytest.mark.promise("PULSAR-52")
async def test_silence_is_bounded(loopback: LoopbackServer) -> None:
    """A server that accepts and says nothing is given up at the timeout."""
    loopback.answer = None
    error = await refusal(loopback.url, timeout=0.05)
    assert "accepts connections but stays silent within 0.05 s" in str(error)
    assert error.result == "Timeout"


@pytest.mark.promise("PULSAR-52")
async def test_a_black_hole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that drops packets is given up at the timeout."""
    monkeypatch.setattr(anyio, "connect_tcp", lambda *_: anyio.sleep_forever())
    error = await refusal("pulsar://10.255.255.1:6650", timeout=0.05)
    assert "cannot connect to 10.255.255.1:6650: it does not answer" in str(error)
    assert error.result == "Timeout"


def failing(error: BaseException) -> Callable[..., Any]:
    """A `connect_tcp` that fails as anyio's does."""

    async def connect(*_values: Any) -> None:
        raise error

    return connect


@pytest.mark.promise("PULSAR-52")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(-2, "Name or service not known"), "there is no host of that name"),
        (UnicodeError("label too long"), "there is no host of that name"),
        (ConnectionResetError(104, "reset"), "it cut the connection"),
        (OSError(113, "No route to host"), "No route to host"),
    ],
)
async def test_what_the_system_says(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    """A host that does not exist, cuts the connection or has no route is told in words."""
    monkeypatch.setattr(anyio, "connect_tcp", failing(error))
    assert reason in str(await refusal("pulsar://broker:6650"))


@pytest.mark.promise("PULSAR-52")
async def test_the_second_host_answers(loopback: LoopbackServer) -> None:
    """Of several hosts the first that answers counts."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"pulsar://127.0.0.1:{reserved.getsockname()[1]},127.0.0.1:{loopback.port}"
        assert (await probe(addresses(url), timeout=5)).version == "a server 9.9"


@pytest.mark.promise("PULSAR-52")
async def test_every_silent_host_is_named(loopback: LoopbackServer) -> None:
    """When no host answers, the error names each with its reason, within the one timeout."""
    loopback.answer = None
    error = await refusal(f"pulsar://127.0.0.1:{loopback.port},localhost:{loopback.port}", timeout=0.1)
    assert f"127.0.0.1:{loopback.port}" in str(error)
    assert f"localhost:{loopback.port}" in str(error)


@pytest.mark.promise("PULSAR-53")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("pulsar://h", (("h", 6650),)),
        ("pulsar+ssl://h", (("h", 6651),)),
        ("pulsar://h:1/", (("h", 1),)),
        ("pulsar://h:1,[::1]:2", (("h", 1), ("::1", 2))),
        ("pulsar://user:secret@h:1", (("h", 1),)),
    ],
)
async def test_addresses(url: str, expected: object) -> None:
    """Hosts and ports are read from the URL, in its order, without user info."""
    assert addresses(url) == expected


@pytest.mark.promise("PULSAR-53")
@pytest.mark.parametrize("url", ["h:1", "http://h:1", "pulsar://", "pulsar://h:port", "pulsar://user:se/cret@h"])
async def test_no_address(url: str) -> None:
    """A URL without one is refused, and its text, which may hold a password, is not repeated."""
    with pytest.raises(PulsarConnectError) as raised:
        addresses(url)

    assert raised.value.result == "InvalidUrl"
    assert raised.value.__cause__ is None
    assert "se" not in str(raised.value).replace("service", "")
