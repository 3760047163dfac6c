"""The token on its way: read in time, sent in the opening frame, quoted by nobody."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator

import anyio
import pytest
from pystream_pulsar import PulsarConnectError, Token
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar._client.handshake import connect_frame
from pystream_pulsar._client.jwt import expired_at
from pystream_pulsar._client.probe import addresses, probe
from pystream_pulsar._client.tokens import TokenSupplier, read_token
from pystream_pulsar._client.wire import fields

from tests.pulsar.client.loopback import REFUSED, LoopbackServer
from tests.pulsar.client.scripted import Binding

HIDDEN = "s3cr3t-t0ken"


@pytest.fixture
def blocking() -> Iterator[Token]:
    """A token whose function returns only when the test is over."""
    over = threading.Event()

    def wait() -> str:
        over.wait(20)
        return HIDDEN

    yield Token(wait)
    over.set()


def jwt(**claims: object) -> str:
    """A token with these claims, signed by nobody."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJIUzI1NiJ9.{body}.c2lnbmVk"


@pytest.mark.promise("PULSAR-124")
def test_the_opening_frame_holds_the_token() -> None:
    """The opening frame names the kind of credentials and holds the token; without one it has neither."""
    content = dict(fields(connect_frame(HIDDEN)[8:]))[2]
    assert isinstance(content, bytes)
    assert dict(fields(content)) == {1: b"pystream", 3: HIDDEN.encode(), 4: 19, 5: b"token"}
    assert b"token" not in connect_frame()


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-121")
async def test_a_refusal_that_repeats_the_token(loopback: LoopbackServer) -> None:
    """A server that quotes the token in its refusal is quoted without it."""
    loopback.answer, quoted = REFUSED, "bad"
    with pytest.raises(PulsarConnectError) as refused:
        await probe(addresses(loopback.url), timeout=5, token=quoted)

    assert "the server refused the connection: (the token) token!" in str(refused.value)
    assert "it does not accept the token that was sent" in str(refused.value)


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-124")
async def test_a_refused_token_that_has_expired(loopback: LoopbackServer) -> None:
    """When the token that was refused has expired, the error says since when, which the server does not."""
    loopback.answer = REFUSED
    with pytest.raises(PulsarConnectError, match=r"; the token expired at 1970-01-01T00:00:00\+00:00$"):
        await probe(addresses(loopback.url), timeout=5, token=jwt(exp=0))


@pytest.mark.promise("PULSAR-124")
@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (jwt(exp=0), "1970-01-01T00:00:00+00:00"),
        (jwt(exp=time.time() + 3600), None),
        (jwt(sub="me"), None),
        (jwt(exp="soon"), None),
        (jwt(exp=10**30), None),
        ("abc", None),
        ("a.b.c", None),
        ("a.W10.c", None),
    ],
    ids=["expired", "valid", "no claim", "no number", "too large", "opaque", "no base64", "no object"],
)
def test_when_a_token_expired(token: str, expected: str | None) -> None:
    """The expiry of a JSON Web Token is read; any other token has none that we know."""
    assert expired_at(token) == expected


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-124")
async def test_a_function_that_blocks(blocking: Token) -> None:
    """A function that gives no token in time is given up, and the loop runs meanwhile."""
    with anyio.fail_after(10), pytest.raises(PulsarConnectError, match=r"did not give one within 0\.05 s") as refused:
        await read_token(blocking, timeout=0.05)

    assert refused.value.result == "Timeout"


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-124")
async def test_a_connect_without_its_token(loopback: LoopbackServer) -> None:
    """A connect whose token cannot be had names the server and sends nothing."""

    def failing() -> str:
        raise LookupError("no such file")

    transport = ClientTransport(ClientSettings(url=loopback.url, auth=Token(failing)))
    with pytest.raises(PulsarConnectError) as refused:
        await transport.connect()

    assert str(refused.value) == (
        f"cannot connect to {loopback.url}: the token could not be had: its function raised LookupError"
    )
    assert loopback.received == b""


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-124")
async def test_the_client_asks_for_the_token(loopback: LoopbackServer, scripted: Binding) -> None:
    """The client gets a fixed token as it is, and for a function something it can call as often as it likes."""
    numbers = iter("123")
    for source in (HIDDEN, lambda: HIDDEN + next(numbers)):
        transport = ClientTransport(ClientSettings(url=loopback.url, auth=Token(source)))
        await transport.connect()
        await transport.close()

    fixed, given = (client.configuration.options["authentication"][0] for client in scripted.clients)
    assert fixed == HIDDEN
    assert [given(), given()] == [f"{HIDDEN}2", f"{HIDDEN}3"]


@pytest.mark.promise("PULSAR-125")
def test_a_supplier_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    """When the function fails later the client gets the latest token, and a warning says so without showing it."""
    answers: list[object] = [HIDDEN, None, KeyboardInterrupt]

    def source() -> str:
        answer = answers.pop(0)
        if isinstance(answer, type):
            raise answer()

        return answer  # type: ignore[return-value]  # none at the second call, on purpose

    supplier = TokenSupplier(Token(source), "first")
    assert [supplier(), supplier(), supplier()] == [HIDDEN, HIDDEN, HIDDEN]
    assert "gave NoneType, not text; the latest one is sent again" in caplog.text
    assert HIDDEN not in caplog.text
