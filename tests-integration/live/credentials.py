"""What the secured server and its clients identify themselves with: certificates and tokens, made for one run."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import ipaddress
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

__all__ = ["Credentials"]

_PROVIDERS = "org.apache.pulsar.broker.authentication"
_CLIENT_PLUGINS = "org.apache.pulsar.client.impl.auth"
_SUPERUSER = "admin"
_LIFETIME = dt.timedelta(days=1)


class Credentials:
    """A secret for tokens, an authority, and the server's certificate, which is good for 127.0.0.1 alone.

    Args:
        directory: An empty directory; the files are made in it.

    Attributes:
        authority: The authority's certificate, which clients trust.
        stranger: The certificate of another authority, which has signed nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._secret = os.urandom(32)
        (directory / "secret").write_bytes(self._secret)
        self.authority = directory / "authority.pem"
        self.stranger = directory / "stranger.pem"
        _self_signed("a stranger").save(self.stranger)
        authority = _self_signed("the authority")
        authority.save(self.authority)
        server = _signed_by(authority)
        server.save(directory / "server.pem", directory / "server-key.pem")

    def token(self, role: str = _SUPERUSER, *, expires_in: float | None = None) -> str:
        """A token of the server's own making; one that `expires_in` a negative number of seconds is no longer valid."""
        return _token(self._secret, role, expires_in)

    def forged_token(self) -> str:
        """A token signed with another secret."""
        return _token(os.urandom(32), _SUPERUSER, None)

    def options(self, tls_port: int) -> Mapping[str, str]:
        """What the server's configuration needs, which asks every client for a token or a certificate."""
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}.AuthenticationProviderToken",
            "tokenSecretKey": f"file://{self._directory / 'secret'}",
            "superUserRoles": _SUPERUSER,
            "brokerClientAuthenticationPlugin": f"{_CLIENT_PLUGINS}.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.token()}",
            "brokerServicePortTls": str(tls_port),
            "tlsCertificateFilePath": str(self._directory / "server.pem"),
            "tlsKeyFilePath": str(self._directory / "server-key.pem"),
            "tlsTrustCertsFilePath": str(self.authority),
            "tlsRequireTrustedClientCertOnConnect": "false",
        }


class _Identity:
    def __init__(self, key: rsa.RSAPrivateKey, certificate: x509.Certificate) -> None:
        self.key = key
        self.certificate = certificate

    def save(self, certificate: Path, key: Path | None = None) -> None:
        certificate.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        if key is not None:
            key.write_bytes(
                self.key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
            )


def _self_signed(name: str) -> _Identity:
    key, subject = _new_key(), _name(name)
    builder = _builder(subject, subject, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return _Identity(key, builder.add_extension(usage, True).sign(key, hashes.SHA256()))


def _signed_by(authority: _Identity) -> _Identity:
    key = _new_key()
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    issuer = authority.key.public_key()
    builder = (
        _builder(_name("the server"), authority.certificate.subject, key)
        .add_extension(address, False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False)
    )
    return _Identity(key, builder.sign(authority.key, hashes.SHA256()))


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFETIME)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _token(secret: bytes, role: str, expires_in: float | None) -> str:
    claims: dict[str, object] = {"sub": role}
    if expires_in is not None:
        claims["exp"] = int(time.time() + expires_in)

    signed = f"{_encoded({'alg': 'HS256'})}.{_encoded(claims)}"
    signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_base64(signature)}"


def _encoded(values: Mapping[str, object]) -> str:
    return _base64(json.dumps(values).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
