"""TLS of the proof that a server answers, and the same trust for the client."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pystream.errors import ConfigurationError
from pystream_pulsar import TLS, PulsarConnectError
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar._client.probe import addresses, probe
from pystream_pulsar._client.tls import ssl_context, trust_file
from pystream_pulsar.transport import ServerInfo

from tests.pulsar.client.loopback import LoopbackServer
from tests.pulsar.client.scripted import Binding

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    signed = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[LoopbackServer]:
    """A server with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with LoopbackServer(context) as server:
        yield server


async def refusal(url: str, tls: TLS) -> PulsarConnectError:
    """The error of a probe that must fail."""
    with anyio.fail_after(10), pytest.raises(PulsarConnectError) as raised:
        await probe(addresses(url), timeout=5, context=ssl_context(tls))

    return raised.value


@pytest.mark.promise("PULSAR-126")
async def test_a_server_with_tls(server: LoopbackServer, certificate: Path) -> None:
    """A server whose certificate is trusted says who it is, over TLS."""
    context = ssl_context(TLS(trust_certs=certificate))
    info = await probe(addresses(server.url), timeout=5, context=context)
    assert info == ServerInfo(version="a server 9.9", max_message_size=1000)


@pytest.mark.promise("PULSAR-126")
async def test_a_certificate_that_nobody_trusts(server: LoopbackServer) -> None:
    """A server whose certificate is not trusted is refused, before anything is sent to it."""
    error = await refusal(server.url, TLS())
    assert "its certificate is not accepted: self" in str(error)
    assert "PulsarBroker(tls=TLS(trust_certs=...))" in str(error)
    assert server.received == b""


@pytest.mark.promise("PULSAR-126")
async def test_a_certificate_for_another_host(server: LoopbackServer, certificate: Path) -> None:
    """A certificate for another host is refused, unless host names are not verified."""
    url = server.url.replace("127.0.0.1", "localhost")
    error = await refusal(url, TLS(trust_certs=certificate))
    assert "not valid for 'localhost'; use the host name that the certificate is for" in str(error)
    relaxed = ssl_context(TLS(trust_certs=certificate, verify_hostname=False))
    assert (await probe(addresses(url), timeout=5, context=relaxed)).version == "a server 9.9"


@pytest.mark.promise("PULSAR-126")
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["http", "closed"])
async def test_a_port_without_tls(loopback: LoopbackServer, answer: bytes) -> None:
    """A port that does not speak TLS is called that."""
    loopback.answer = answer
    error = await refusal(loopback.url, TLS())
    assert "what answers there does not speak TLS, or cut the connection" in str(error)
    assert error.result == "ConnectError"


@pytest.mark.promise("PULSAR-127")
@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_a_file_that_cannot_be_used(tmp_path: Path, loopback: LoopbackServer, content: str | None) -> None:
    """A file of trusted certificates that is missing or holds none is refused before anything is sent."""
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)

    transport = ClientTransport(ClientSettings(url=loopback.url, tls=TLS(trust_certs=path)))
    with pytest.raises(ConfigurationError) as refused:
        await transport.connect()

    why = "the file cannot be read: No such file" if content is None else "the file holds no certificates in PEM form"
    assert str(refused.value).startswith(f"TLS(trust_certs={str(path)!r}): {why}")
    assert loopback.received == b""


@pytest.mark.promise("PULSAR-126")
async def test_the_client_trusts_the_same(server: LoopbackServer, certificate: Path, scripted: Binding) -> None:
    """The client trusts the same file, accepts no other certificate, and verifies host names as it is told to."""
    url = server.url.replace("pulsar://", "pulsar+ssl://")
    for verify in (True, False):
        tls = TLS(trust_certs=certificate, verify_hostname=verify)
        transport = ClientTransport(ClientSettings(url=url, tls=tls))
        await transport.connect()
        await transport.close()

    for client, verify in zip(scripted.clients, (True, False), strict=True):
        options = client.configuration.options
        assert options["tls_trust_certs_file_path"] == (str(certificate),)
        assert options["tls_allow_insecure_connection"] == (False,)
        assert options["tls_validate_hostname"] == (verify,)


@pytest.mark.promise("PULSAR-126")
async def test_the_authorities_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file the system's authorities are trusted, or certifi's where Python knows of none."""
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile="/a"))
    assert trust_file(TLS()) == "/a"
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None))
    assert trust_file(TLS()).endswith("cacert.pem")
