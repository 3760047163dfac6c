"""Token and TLS against a server that asks for both: what works, and what every refusal says."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from live.choice import LiveServer
from live.credentials import Credentials
from live.orders import Log, Order, Unique, publish_orders
from live.real import RealPulsar
from pystream import PyStream, State, mount
from pystream.clock import LoopClock
from pystream.errors import ConfigurationError, PublishError
from pystream_pulsar import TLS, PulsarBroker, PulsarConnectError, PulsarSubscription, Token

pytestmark = [pytest.mark.anyio, pytest.mark.gate]

SERVICE = Path(__file__).with_name("consume_secured.py")


@pytest.fixture
def trust(credentials: Credentials) -> TLS:
    """The authority that has signed the server's certificate."""
    return TLS(trust_certs=credentials.authority)


@pytest.fixture
def token(credentials: Credentials) -> Token:
    """One the server accepts, for everything."""
    return Token(credentials.token())


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port that answers no more connections: the few that its queue holds are made already."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listening.getsockname()[1]
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))

        yield port


async def connect(broker: PulsarBroker, *, within: float = 10) -> None:
    """Connect and close."""
    with anyio.fail_after(within):
        connection = await broker.connect(LoopClock())
        await connection.close()


async def refusal(broker: PulsarBroker, *, within: float = 10) -> str:
    """What a connect that must fail says."""
    with pytest.raises(PulsarConnectError) as refused:
        await connect(broker, within=within)

    return str(refused.value)


async def round_trip(broker: PulsarBroker, topic: str, count: int = 200) -> None:
    """Publish and handle a few messages."""
    log = Log()

    async def read(order: Order, log: State[Log]) -> None:
        log.add(order.id)

    app = PyStream("reader", state=log).with_broker(broker, mount(read, PulsarSubscription(topic, "reader")))
    async with app.start() as running:
        await publish_orders(running.publisher(), topic, range(count))
        await log.distinct(count)


@pytest.mark.promise("PULSAR-140")
async def test_a_token(secured: RealPulsar, credentials: Credentials, token: Token, unique: Unique) -> None:
    """With a token, fixed or from a function, a service publishes and handles messages."""
    await round_trip(PulsarBroker(secured.url, auth=token), unique("token"))
    await round_trip(PulsarBroker(secured.url, auth=Token(credentials.token)), unique("token"))


@pytest.mark.promise("PULSAR-140")
async def test_a_token_over_tls(secured: RealPulsar, token: Token, trust: TLS, unique: Unique) -> None:
    """Over TLS, the host name verified, a service publishes and handles messages."""
    await round_trip(PulsarBroker(secured.tls_url, auth=token, tls=trust), unique("tls"))


@pytest.mark.promise("PULSAR-140")
async def test_a_host_name_that_is_not_verified(
    secured: RealPulsar, token: Token, credentials: Credentials, unique: Unique
) -> None:
    """A host that the certificate is not for is refused, and works once host names are not verified."""
    url = f"pulsar+ssl://localhost:{secured.tls_port}"
    strict, relaxed = (TLS(trust_certs=credentials.authority, verify_hostname=verify) for verify in (True, False))
    assert "not valid for 'localhost'" in await refusal(PulsarBroker(url, auth=token, tls=strict))
    await round_trip(PulsarBroker(url, auth=token, tls=relaxed), unique("relaxed"))


@pytest.mark.promise("PULSAR-141")
async def test_no_token(secured: RealPulsar) -> None:
    """Without a token the connect is refused in the server's words, with the way out."""
    said = await refusal(PulsarBroker(secured.url))
    assert said.startswith(f"cannot connect to {secured.url.removeprefix('pulsar://')}: the server refused the conn")
    assert said.endswith("no token was sent: give PulsarBroker(auth=Token(...))")


@pytest.mark.promise("PULSAR-141")
async def test_a_wrong_token(secured: RealPulsar, credentials: Credentials, trust: TLS) -> None:
    """A token that the server has not signed is refused, on both ports, and not repeated."""
    for secret in (credentials.forged_token(), "no-web-token"):
        broker = PulsarBroker(secured.url, auth=Token(secret))
        encrypted = PulsarBroker(secured.tls_url, auth=Token(secret), tls=trust)
        for said in (await refusal(broker), await refusal(encrypted)):
            assert said.endswith("it does not accept the token that was sent")
            assert secret not in said


@pytest.mark.promise("PULSAR-141")
async def test_an_expired_token(secured: RealPulsar, credentials: Credentials) -> None:
    """An expired token is refused, and the error says since when it is expired."""
    secret = credentials.token(expires_in=-60)
    said = await refusal(PulsarBroker(secured.url, auth=Token(secret)))
    assert "; the token expired at 20" in said
    assert secret not in said


@pytest.mark.promise("PULSAR-141")
async def test_a_token_that_may_do_nothing(secured: RealPulsar, credentials: Credentials, unique: Unique) -> None:
    """A token without the permission connects, and the publish says that the permission is missing."""
    broker, topic = PulsarBroker(secured.url, auth=Token(credentials.token("nobody"))), unique("forbidden")
    async with PyStream("sender").with_broker(broker).start() as running:
        with anyio.fail_after(10), pytest.raises(PublishError, match=r"do not permit this.*AuthorizationError") as no:
            await running.publisher().publish(b"hello", topic)

    assert topic in str(no.value)


@pytest.mark.promise("PULSAR-142")
async def test_ports_of_another_kind(secured: RealPulsar, token: Token, trust: TLS) -> None:
    """TLS on a plain port, no TLS on a TLS port, and the port of HTTP are each told as what they are."""
    plain_with_tls = PulsarBroker(secured.url.replace("pulsar:", "pulsar+ssl:"), auth=token, tls=trust)
    assert "does not speak TLS" in await refusal(plain_with_tls)
    tls_without = PulsarBroker(f"pulsar://127.0.0.1:{secured.tls_port}", auth=token)
    assert "as a port with TLS does" in await refusal(tls_without)
    http = PulsarBroker(f"pulsar://127.0.0.1:{secured.admin_port}", auth=token)
    assert "an HTTP server answers there" in await refusal(http)
    http_with_tls = PulsarBroker(f"pulsar+ssl://127.0.0.1:{secured.admin_port}", auth=token, tls=trust)
    assert "does not speak TLS" in await refusal(http_with_tls)


@pytest.mark.promise("PULSAR-142")
async def test_certificates_that_are_not_trusted(secured: RealPulsar, token: Token, credentials: Credentials) -> None:
    """A certificate signed by an authority that is not trusted is refused, named or the system's."""
    stranger = PulsarBroker(secured.tls_url, auth=token, tls=TLS(trust_certs=credentials.stranger))
    system = PulsarBroker(secured.tls_url, auth=token)
    for broker in (stranger, system):
        said = await refusal(broker)
        assert "its certificate is not accepted" in said
        assert "TLS(trust_certs=...)" in said


@pytest.mark.promise("PULSAR-142")
async def test_a_missing_file(secured: RealPulsar, token: Token, tmp_path: Path) -> None:
    """A file of trusted certificates that is missing is named, and nothing is sent."""
    missing = tmp_path / "authority.pem"
    with pytest.raises(ConfigurationError) as refused:
        await connect(PulsarBroker(secured.tls_url, auth=token, tls=TLS(trust_certs=missing)))

    assert str(missing) in str(refused.value)


@pytest.mark.promise("PULSAR-142")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer for a queue that is full")
async def test_a_black_hole(black_hole: int) -> None:
    """An address that answers nothing is given up after the connect timeout."""
    said = await refusal(PulsarBroker(f"pulsar://127.0.0.1:{black_hole}", connection_timeout=1), within=5)
    assert said == f"cannot connect to 127.0.0.1:{black_hole}: it does not answer (a firewall may drop us) within 1 s"


@pytest.mark.promise("PULSAR-142")
async def test_a_token_for_an_open_server(real_server: LiveServer, token: Token, unique: Unique) -> None:
    """A server that asks for nothing takes a client with a token."""
    await round_trip(PulsarBroker(real_server.url, auth=token), unique("open"), 5)


@pytest.mark.promise("PULSAR-121")
@pytest.mark.parametrize("outcome", ["accepted", "refused"])
def test_no_log_holds_the_token(
    secured: RealPulsar, credentials: Credentials, unique: Callable[[str], str], outcome: str
) -> None:
    """With every logger at DEBUG, the client's own included, neither a run nor a refused start shows the token."""
    secret = credentials.token() if outcome == "accepted" else credentials.forged_token()
    command = [sys.executable, str(SERVICE), secured.tls_url, str(credentials.authority), unique("log")]
    ended = subprocess.run(command, input=secret, capture_output=True, text=True, timeout=50, check=False)
    shown = ended.stdout + ended.stderr
    assert ("handled" in shown) == (outcome == "accepted"), shown
    assert "pystream_pulsar.client" in shown or outcome == "refused"
    assert "PulsarConnectError" in shown or outcome == "accepted"
    for part in (secret, *secret.split(".")[1:]):
        assert part not in shown
